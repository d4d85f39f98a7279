# Everything there is to run. `make` alone lists it; CI calls these targets and nothing else.
# Written for GNU make 3.81 (macOS) and later, and any POSIX shell.

GO        ?= go
ARGS      ?=
BENCH     ?= .
FUZZTIME  ?= 60s
MINUTES   ?=
NAME      = all
SECONDS   ?= $(if $(SEED),0,60)
HISTORIES ?= 50
SEED      ?=
COUNT     ?= 100000

# As deploy/steps/60-functions.sh builds the functions. GOFLAGS holds for every Go command below; a -tags flag replaces
# the tag, so it has to repeat it.
TAGS = disable_grpc_modules
export GOFLAGS := $(strip $(GOFLAGS) -tags=$(TAGS))

# Built from source by the Go command, checked against .tools/go.sum and kept in the build cache: some minutes the
# first time, about a second after that. A newer Go or version builds it again by itself.
GOLANGCI = $(GO) tool -modfile=.tools/go.mod golangci-lint

# Below the 15 minutes that CI allows for everything, so that a hanging test leaves its stack traces.
TIMEOUT  = 14m
# The race detector makes the crash walks several times slower.
TIMEOUT_RACE = 40m

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A fresh clone compiles for more than a minute, nearly all of it the Spanner client. These flags shorten that: no
# inlining, debug information or C, and a compiler without garbage collection. No other target shares their results, so
# they are left out when the build cache has the ordinary Spanner client.
LOCAL = bin/local-quick
QUICK = CGO_ENABLED=0 GOGC=off $(GO) build -o $(LOCAL) -gcflags='all=-l -dwarf=false' -ldflags='-s -w'
BUILD_LOCAL = if $(GO) build -n cloud.google.com/go/spanner 2>&1 | grep -q '/compile '; \
	then echo "compiling, about a minute the first time" >&2; $(QUICK) ./cmd/local; else $(GO) build -o $(LOCAL) ./cmd/local; fi

.PHONY: run
run: ## run the whole system on this machine until interrupted (ARGS="--listen 127.0.0.1:8080 --topic claims")
	@$(BUILD_LOCAL)
	@$(LOCAL) $(ARGS)

.PHONY: demo
demo: ## settle a sample of messages, show the ledger, and compare it with the bank
	@$(BUILD_LOCAL)
	@$(LOCAL) demo $(ARGS)

.PHONY: build
build: ## build the programs into bin/
	$(GO) build -o bin/ ./cmd/...

# The end-to-end tests run first and alone, since some of them measure seconds. The others wait for their emulators more
# than they compute, so two packages at a time keep two cores busy. The build before uses all cores.
E2E    = ./internal/test/e2e
OTHERS = $$($(GO) list ./... | grep -v '/internal/test/e2e$$')

.PHONY: test
test: ## run all tests
	@$(GO) build ./...
	$(GO) test -count=1 -timeout=$(TIMEOUT) $(E2E)
	@$(GO) test -p 2 -count=1 -timeout=$(TIMEOUT) $(OTHERS)

# The packages whose tests start no emulator.
UNIT = $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}{{end}}' ./... | \
	grep -v -e '/settleonce/emulator' -e 'emulatortest' | cut -d' ' -f1)

.PHONY: check
check: lint ## run the linters, build, and run the tests that need no emulator; before each commit
	@$(GO) build ./...
	@$(GO) test -count=1 -timeout=5m $(UNIT)

.PHONY: race
race: ## run all tests under the race detector
	@$(GO) build -race ./...
	$(GO) test -race -count=1 -timeout=$(TIMEOUT_RACE) $(E2E)
	@$(GO) test -race -p 2 -count=1 -timeout=$(TIMEOUT_RACE) $(OTHERS)

.PHONY: race-unit
race-unit: ## run the tests that need no emulator under the race detector
	@$(GO) test -race -count=1 -timeout=$(TIMEOUT) $(UNIT)

# The Go command prints what a test of the current directory writes, a line for each mutant.
.PHONY: mutants
mutants: ## insert each of 22 faults and run the tests that must fail (NAME=a patch of internal/test/mutants/testdata)
	@cd internal/test/mutants && $(GO) test -count=1 -timeout=30m -mutants.run=$(NAME)

# Takes 22 minutes on two idle cores. Writes the figures of docs/benchmarks.md and its chart.
.PHONY: bench
bench: ## compare Settle Once with alternatives, and write figures and chart into docs/ (ARGS="--quick", "--help")
	@mkdir -p bin
	@$(GO) build -o bin/bench ./internal/test/bench
	@bin/bench $(ARGS)

.PHONY: microbench
microbench: ## run all Go benchmarks and count allocations (BENCH=pattern)
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem ./...

# The Go command fuzzes one target of one package at a time. Left to itself it spends most of the time on making each
# input that reaches something new as small as it can.
.PHONY: fuzz
fuzz: ## run every fuzz target in turn (FUZZTIME=60s each)
	@found=0; \
	pkgs=$$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...) || exit 1; \
	for pkg in $$pkgs; do \
		listed=$$($(GO) test -list='^Fuzz' "$$pkg") || { echo "$$listed"; exit 1; }; \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			found=1; \
			echo "== $$pkg $$target"; \
			$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=10x "$$pkg" || exit 1; \
		done; \
	done; \
	if [ $$found = 0 ]; then echo "no fuzz target found" >&2; exit 1; fi

# A failure names its seed: SEED draws that one sequence again, and with SECONDS those of the seeds after it too.
.PHONY: sim
sim: ## run random sequences of deliveries and faults, and check every step (SECONDS=60, or SEED=)
	$(GO) test -count=1 -v -timeout=$$(($(SECONDS) + 300))s -run='^(TestSequences|TestKept)$$' ./internal/test/sim \
		-sim.seconds=$(SECONDS) $(if $(SEED),-sim.seed=$(SEED))

# SEED draws the messages of a failure again; which fault meets which of them depends on the schedule too. What a
# failure draws for a web browser is kept in bin/.
.PHONY: linear
linear: ## deliver concurrently while commits and answers get lost, and check for a valid order (HISTORIES=50, SEED=)
	@mkdir -p bin
	$(GO) test -count=1 -v -timeout=$$(($(HISTORIES) * 20 + 300))s -run='^TestStoresOnSpanner$$' -artifacts -outputdir=bin ./internal/test/linear \
		-linear.histories=$(HISTORIES) $(if $(SEED),-linear.seed=$(SEED))

# SEED draws the messages of a run again. When memory has grown, what it holds is kept in bin/.
.PHONY: soak
soak: ## deliver 50,000 messages, 64 at a time, and check every row and the memory (MINUTES=60 runs for a time instead; SEED=)
	@mkdir -p bin
	$(GO) test -tags=soak,$(TAGS) -count=1 -v -timeout=$(if $(MINUTES),$$(($(MINUTES) + 15)),60)m -run='^TestSoak$$' -artifacts -outputdir=bin $(E2E) \
		$(if $(MINUTES),-soak.minutes=$(MINUTES)) $(if $(SEED),-soak.seed=$(SEED))

.PHONY: verify-large
verify-large: ## verify a database of 100,000 settlements and print the peak memory (COUNT=100000)
	$(GO) test -count=1 -v -timeout=60m -run='^TestVerifyLarge$$' ./cmd/settlectl -verify.count=$(COUNT)

.PHONY: crash
crash: ## run only the crash tests: kill the function or settlectl before and after each request
	$(GO) test -count=1 -v -timeout=$(TIMEOUT) -run='^TestEveryCrashPoint$$' $(E2E) ./cmd/settlectl

.PHONY: deploy-rehearsal
deploy-rehearsal: ## run the deployment scripts offline with the real gcloud, then build and run the upload
	$(GO) test -count=1 -v -timeout=$(TIMEOUT) ./deploy/rehearsal

.PHONY: lint
lint: ## check style, formatting, go vet, go.mod and the shell scripts
	$(GOLANGCI) config verify
	$(GOLANGCI) run
	$(GO) vet -tags=soak,$(TAGS) ./...
	$(GO) mod tidy -diff
	@if command -v shellcheck >/dev/null 2>&1; then \
		set -- .ci/run; \
		for f in deploy/*.sh deploy/lib/*.sh deploy/steps/*.sh; do if [ -f "$$f" ]; then set -- "$$@" "$$f"; fi; done; \
		echo "shellcheck $$*"; shellcheck "$$@"; \
	else \
		echo "shellcheck is not installed: shell scripts not checked"; \
	fi

# Sources by area without tests, tests, the counts that keep the language plain (limits in parentheses), and the files
# that a newcomer sees first.
.PHONY: house
house: ## count lines by area, words that plain English avoids, README's lines and root files
	@count() { git ls-files $$1 | grep '\.go$$' | grep $$2 '_test\.go$$' | xargs cat /dev/null | wc -l; }; \
	for area in function.go cmd internal/settle internal/spannerstore internal/event internal/bank internal/ledger internal/audit \
		internal/test emulator deploy; do printf '%-22s %6d Go, %6d tests\n' "$$area" $$(count "$$area" -v) $$(count "$$area"); done; \
	printf '%-22s %6d Go (27000), %6d tests\n' all $$(count . -v) $$(count .); \
	words() { git ls-files | grep -E '\.(go|md)$$' | xargs cat | grep -ciwE "$$1"; }; \
	echo "what: $$(words what) (250)"; \
	echo "nobody, somebody, whoever: $$(words 'nobody|somebody|whoever') (15)"; \
	echo "someone, anybody, anyone, that which, those who: $$(words 'someone|anybody|anyone|that which|those who') (40)"; \
	echo "README.md: $$(wc -l <README.md) lines (200); root: $$(git ls-files | grep -cv /) files, $$(git ls-files | grep -cE '^[^/]+_test\.go$$') tests (0)"

.PHONY: fmt
fmt: ## format the Go files
	$(GOLANGCI) fmt

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
