package main

import "embed"

//go:embed testdata/*.patch
var patches embed.FS

// tests are tests of one package, by their names: a subtest stands behind a
// slash, with its name as it is in the source.
type tests struct {
	pkg   string // its directory in the module
	names []string
}

// expectation says which tests have to fail for a mutant. Each of them states
// the promise that the mutant breaks, and is quick; run with -all for the others.
type expectation struct {
	mutant string // the name of its patch without .patch
	tests  []tests
}

const (
	settlePackage  = "internal/settle"
	storePackage   = "internal/spannerstore"
	operatePackage = "internal/operate"
)

// caughtBy is the table of all mutants.
var caughtBy = []expectation{
	{"hash-not-compared", []tests{{storePackage, []string{
		"TestConformance/a changed member is a conflict that names exactly that member",
		"TestConformance/two payloads at the same time under one ID",
	}}}},
	{"waiter-takes-any-payload", []tests{{settlePackage, []string{"TestEachConflictOfAStormIsCounted"}}}},
	{"two-commits", []tests{{storePackage, []string{
		"TestConformance/a new settlement is applied with everything that was given",
		"TestRPCsOfADelivery",
	}}}},
	{"delivery-id-ignored", []tests{{storePackage, []string{
		"TestConformance/an own commit is recognised by its delivery ID",
		"TestALostAnswerSettlesOnce/UNAVAILABLE/answer of the first Commit lost",
	}}}},
	{"timeout-taken-as-rejected", []tests{{"internal/bank", []string{"TestTimeoutIsNotAFailure"}}}},
	{"not-found-once-resends", []tests{{settlePackage, []string{
		"TestNotFoundAllowsAResendOnlyWhenEverythingHolds",
		"TestNotFoundCountsFromTheEndThatWaitsLonger",
	}}}},
	{"lease-not-checked", []tests{{settlePackage, []string{
		"TestALeaseForbidsWhatIsDue",
		"TestAStepThatHasLostItsLeaseRecordsNothing",
	}}}},
	{"version-not-checked", []tests{{settlePackage, []string{"TestAChangeIsMadeOnlyToWhatItWasWorkedOutFor"}}}},
	{"reversal-without-state", []tests{{storePackage, []string{
		"TestConformance/a rejected transfer reverses the movement in one change",
	}}}},
	{"key-made-anew", []tests{{settlePackage, []string{"TestEveryResendHasTheSameKeyAndBytes"}}}},
	{"body-made-anew", []tests{{settlePackage, []string{"TestEveryResendHasTheSameKeyAndBytes"}}}},
	{"acknowledged-before-commit", []tests{{"internal/event", []string{
		"TestNothingIsAnsweredBeforeTheDeliveryHasEnded",
		"TestAnswersAndLines/outcome unknown",
	}}}},
	{"expire-from-set-early", []tests{{storePackage, []string{
		"TestConformance/a bank instruction is created with the movement",
	}}}},
	{"decided-about-another-version", []tests{{operatePackage, []string{"TestACaseOfTheDayBefore"}}}},
	{"old-key-not-kept", []tests{{operatePackage, []string{"TestResendUnderANewKey", "TestADecisionWhoseAnswerWasLost"}}}},
	{"marked-before-published", []tests{{operatePackage, []string{"TestACrashBetweenPublishingAndMarking"}}}},
}
