# shellcheck shell=bash
step "Functions"

# A label of the function has the digest of its source and flags. Comparing Google's description of the function with the
# flags would find differences where Google adds defaults.
SOURCE_DIGEST=source
if [[ $MODE != dry-run ]]; then
	SOURCE_DIGEST=$(gcloud meta list-files-for-upload . </dev/null 2>/dev/null | LC_ALL=C sort | while IFS= read -r file; do
		printf '%s %s\n' "$file" "$(digest <"$file")"
	done | digest)
fi

environment=(
	SPANNER_DATABASE="projects/$PROJECT_ID/instances/$SPANNER_INSTANCE/databases/$SPANNER_DATABASE"
	SPANNER_DATABASE_ROLE=settleonce_function
	SPANNER_MAX_COMMIT_DELAY="$SPANNER_MAX_COMMIT_DELAY"
	SETTLE_TIMEOUT="$SETTLE_TIMEOUT"
	LOG_LEVEL="$LOG_LEVEL"
)
[[ -z $DEFAULT_CURRENCY ]] || environment+=(DEFAULT_CURRENCY="$DEFAULT_CURRENCY")
[[ -z $OTEL_EXPORTER_OTLP_ENDPOINT ]] || environment+=(OTEL_EXPORTER_OTLP_ENDPOINT="$OTEL_EXPORTER_OTLP_ENDPOINT")
secrets=()
if [[ -n $BANK_URL ]]; then
	environment+=(
		BANK_URL="$BANK_URL"
		BANK_KEY_LIFETIME="$BANK_KEY_LIFETIME"
		BANK_VISIBILITY_LAG="$BANK_VISIBILITY_LAG"
		BANK_SEND_TIMEOUT="$BANK_SEND_TIMEOUT"
		BANK_STATUS_TIMEOUT="$BANK_STATUS_TIMEOUT"
		BANK_CONCURRENCY="$BANK_CONCURRENCY"
	)
	# Numbered versions, so that all instances have the same.
	secrets+=("BANK_TOKEN=$BANK_TOKEN_SECRET:$BANK_TOKEN_VERSION")
	if [[ -n $BANK_PROFILE_FILE ]]; then
		environment+=(BANK_PROFILE=/etc/settleonce/profile.json)
		secrets+=("/etc/settleonce/profile.json=$BANK_PROFILE_SECRET:$BANK_PROFILE_VERSION")
	fi
fi

# The tag leaves DirectPath's modules out of the Spanner client: a fifth of the packages and a third of the program. The
# Makefile has the same tag, so the tests compile the deployed code.
GO_BUILD_FLAGS=-tags=disable_grpc_modules

joined() { # separator, words
	local IFS=$1
	printf '%s' "${*:2}"
}

# collector MEMORY prints the settings of Go's garbage collector for an instance of that memory. GOGC=400 lets the heap grow
# to five times the live data instead of twice, so that a start, which mostly initialises packages, collects nothing. One
# measurement: a start was about a tenth shorter. Above GOMEMLIMIT the collector runs as often as necessary; this does not
# limit the live data.
collector() {
	printf 'GOGC=400|GOMEMLIMIT=%dMiB' $(($(mebibytes "$1") * 4 / 5))
}

# deploy_function SETTLE|RECONCILE ENTRY_POINT TOPIC deploys a function with its trigger, or a new revision, and sets
# SETTLE_SUBSCRIPTION or RECONCILE_SUBSCRIPTION to the trigger's subscription.
deploy_function() {
	of() { # prints a setting of this function
		local setting=${prefix}_$1
		printf '%s' "${!setting}"
	}
	local prefix=$1 name digest before=''
	name=$(of FUNCTION)
	local subscription=${prefix}_SUBSCRIPTION
	local flags=(
		--gen2 --region="$REGION" --runtime="$RUNTIME" --source=. --entry-point="$2"
		--service-account="$(of EMAIL)"
		--build-service-account="projects/$PROJECT_ID/serviceAccounts/$BUILD_EMAIL"
		--ingress-settings=internal-only --no-allow-unauthenticated
		--memory="$(of MEMORY)" --cpu="$(of CPU)" --concurrency="$(of CONCURRENCY)"
		--min-instances="$(of MIN_INSTANCES)" --max-instances="$(of MAX_INSTANCES)" --timeout="$(of FUNCTION_TIMEOUT)"
		--set-build-env-vars="GOFLAGS=$GO_BUILD_FLAGS"
		--set-env-vars="^|^$(joined '|' "${environment[@]}" "$(collector "$(of MEMORY)")")"
	)
	if ((${#secrets[@]})); then flags+=(--set-secrets="$(joined , "${secrets[@]}")"); else flags+=(--clear-secrets); fi
	local trigger=(--trigger-topic="$3" --trigger-location="$REGION" --trigger-service-account="$TRIGGER_EMAIL" --retry)
	digest=$(printf '%s\n' "$SOURCE_DIGEST" "${flags[@]}" | digest)
	[[ $MODE != dry-run ]] || digest=digest

	resource "function $name" "$(fields ACTIVE "$digest")" \
		gcloud functions describe "$name" --region="$REGION" --format='value(state,labels.settleonce_digest)'
	about "Takes some minutes. The trigger creates the subscription."
	create gcloud functions deploy "$name" "${flags[@]}" --update-labels="settleonce_digest=$digest" "${trigger[@]}"
	if [[ $VERDICT == different ]]; then
		subscription_of "$name" "$subscription"
		before=${!subscription}
	fi
	about "Without trigger flags, so that the trigger and its subscription stay, with the waiting messages."
	change gcloud functions deploy "$name" "${flags[@]}" --update-labels="settleonce_digest=$digest"

	subscription_of "$name" "$subscription"
	[[ -z $before || ${!subscription} == "$before" ]] ||
		fail "the trigger's subscription was $before and is ${!subscription}: see 'A subscription that was lost' in deploy/README.md"

	about "Only the trigger's account may call this function."
	grant roles/run.invoker "serviceAccount:$TRIGGER_EMAIL" "run services" "$name" --region="$REGION"
}

# subscription_of FUNCTION NAME sets NAME to the subscription of a function's trigger.
subscription_of() {
	value TRIGGER_NAME TRIGGER gcloud functions describe "$1" --region="$REGION" --format='value(eventTrigger.trigger)'
	value "$2" "$2" gcloud eventarc triggers describe "$TRIGGER_NAME" --location="$REGION" \
		--format='value(transport.pubsub.subscription.basename())'
	[[ -n ${!2} ]] || fail "function $1 has no trigger with a subscription"
}

deploy_function SETTLE SettlePayout "$PAYOUTS_TOPIC"
deploy_function RECONCILE ReconcileBank "$RECONCILE_TOPIC"
