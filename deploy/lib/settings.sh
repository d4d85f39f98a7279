# shellcheck shell=bash
# Reads and checks the settings before deploy.sh changes anything.

# The names of all settings, from settings.env.example.
mapfile -t SETTINGS < <(sed -nE 's/^([A-Z_]+)=.*/\1/p' "$DEPLOY/settings.env.example")

# All faults, and the settings of a wrong form, whose values the later checks skip.
FAULTS=() BAD=' '
fault() { FAULTS+=("$*"); }
fault_in() { # setting, fault
	BAD+="$1 "
	fault "${*:2}"
}

# sound NAME... succeeds if all the settings have the right form.
sound() {
	local name
	for name; do
		[[ $BAD != *" $name "* ]] || return 1
	done
}

# read_settings FILE reads the values of a file. It does not run the file, and rejects values that a shell would expand.
read_settings() {
	local line number=0 name text
	while IFS= read -r line || [[ -n $line ]]; do
		number=$((number + 1))
		[[ -n $line && $line != '#'* ]] || continue
		if [[ ! $line =~ ^([A-Z_]+)=([^\"\'\$\`\\\;\ ]*|\"[^\"\$\`\\]*\")$ ]]; then
			fault "$1, line $number: expected NAME=value or NAME=\"value\" and nothing else: $line"
			continue
		fi
		name=${BASH_REMATCH[1]} text=${BASH_REMATCH[2]}
		if [[ " ${SETTINGS[*]} " != *" $name "* ]]; then
			fault "$1, line $number: unknown setting $name; see settings.env.example"
			continue
		fi
		text=${text#\"} text=${text%\"}
		printf -v "$name" '%s' "$text"
	done <"$1"
}

# load_settings FILE reads the defaults and then the deployment's values.
load_settings() {
	[[ -f $1 ]] || fail "no settings file $1; begin with: cp deploy/settings.env.example $1"
	read_settings "$DEPLOY/settings.env.example"
	read_settings "$1"
	local name beside
	beside=$(cd "$(dirname "$1")" && pwd)
	for name in BANK_PROFILE_FILE MONITORING_DIR; do
		[[ -z ${!name} || ${!name} == /* ]] || printf -v "$name" '%s' "$beside/${!name}"
	done
	MONITORING_DIR=${MONITORING_DIR:-deploy/monitoring}
}

# use_project sets gcloud's project, turns its prompts off and derives names for the steps.
use_project() {
	export CLOUDSDK_CORE_PROJECT=$PROJECT_ID CLOUDSDK_CORE_DISABLE_PROMPTS=1
	local name
	for name in SETTLE RECONCILE TRIGGER BUILD OPERATOR; do
		local account=${name}_ACCOUNT
		printf -v "${name}_EMAIL" '%s' "${!account}@$PROJECT_ID.iam.gserviceaccount.com"
	done
	if [[ $MODE == dry-run ]]; then
		printf '
export CLOUDSDK_CORE_PROJECT=%s CLOUDSDK_CORE_DISABLE_PROMPTS=1
' "$PROJECT_ID"
	fi
}

# seconds converts a duration such as 90s, 1m30s, 24h or 7d to seconds.
seconds() {
	local rest=$1 total=0
	[[ -n $rest ]] || return 1
	while [[ -n $rest ]]; do
		[[ $rest =~ ^([0-9]{1,9})([smhd])(.*)$ ]] || return 1
		rest=${BASH_REMATCH[3]}
		case ${BASH_REMATCH[2]} in
		s) total=$((total + 10#${BASH_REMATCH[1]})) ;;
		m) total=$((total + 10#${BASH_REMATCH[1]} * 60)) ;;
		h) total=$((total + 10#${BASH_REMATCH[1]} * 3600)) ;;
		d) total=$((total + 10#${BASH_REMATCH[1]} * 86400)) ;;
		esac
	done
	echo "$total"
}

# duration NAME LEAST MOST checks a duration.
duration() {
	local length
	if ! length=$(seconds "${!1}"); then
		fault_in "$1" "$1 is '${!1}'; expected a number with s, m, h or d, such as 90s or 7d"
	elif ((length < $(seconds "$2") || length > $(seconds "$3"))); then
		fault_in "$1" "$1 is ${!1}; expected $2 to $3"
	fi
}

# number NAME LEAST MOST checks a whole number.
number() {
	if [[ ! ${!1} =~ ^[0-9]{1,9}$ ]]; then
		fault_in "$1" "$1 is '${!1}'; expected a whole number"
	elif ((10#${!1} < $2 || 10#${!1} > $3)); then
		fault_in "$1" "$1 is ${!1}; expected $2 to $3"
	fi
}

# matches NAME PATTERN WORDS checks a setting's form.
matches() {
	[[ ${!1} =~ ^($2)$ ]] || fault_in "$1" "$1 is '${!1}'; expected $3"
}

# ordered LEAST MOST checks that the first number or duration is not above the second.
ordered() {
	local least=${!1} most=${!2}
	sound "$1" "$2" || return 0
	[[ $least =~ ^[0-9]+$ ]] || least=$(seconds "$least") most=$(seconds "$most")
	((10#$least <= 10#$most)) || fault "$1 is ${!1} and $2 ${!2}; the first must not be above the second"
}

# distinct NAME... checks that no two settings have the same value.
distinct() {
	local one other
	while (($# > 1)); do
		one=$1
		shift
		for other; do
			! sound "$one" "$other" || [[ ${!one} != "${!other}" ]] || fault "$one and $other are both '${!one}'; they must differ"
		done
	done
}

# members NAME PATTERN WORDS checks the form of each word of a setting.
members() {
	local word
	for word in ${!1}; do
		[[ $word =~ ^($2)$ ]] || fault_in "$1" "$1 has '$word'; expected $3"
	done
}

# mebibytes converts 512Mi or 1Gi to mebibytes.
mebibytes() {
	local amount=${1%?i}
	[[ $1 != *Gi ]] || amount=$((amount * 1024))
	echo "$amount"
}

# receipt_days prints the receipt retention in days, from the last row deletion policy of the schema.
receipt_days() {
	sed 's/--.*//' "$ROOT"/schema/*.sql | tr '\n' ' ' | tr ';' '\n' |
		sed -nE 's/.*TABLE (IF NOT EXISTS )?settlement_receipts[^a-z_].*ROW DELETION POLICY *\( *OLDER_THAN *\( *applied_at *, *INTERVAL ([0-9]+) DAY *\) *\).*/\2/p' |
		tail -n 1
}

# check_settings ends the script with all faults of the settings, or reports the checked time limits and retentions.
check_settings() {
	local name
	[[ $MODE != dry-run ]] || printf '# The commands of deploy/%s. This dry run runs none of them.\n' "${0##*/}"
	step "Settings"
	check_forms
	check_names
	check_spanner
	for name in SETTLE RECONCILE; do
		check_instance "$name"
	done
	check_times
	check_commit_delay
	check_retention
	if ((${#FAULTS[@]})); then
		printf '%s\n' "${FAULTS[@]}" >&2
		((${#FAULTS[@]} > 1)) || fail "nothing was changed: the settings have a fault"
		fail "nothing was changed: the settings have ${#FAULTS[@]} faults"
	fi
}

check_forms() {
	local name
	matches PROJECT_ID '([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]' 'the ID of a project'
	matches REGION '[a-z]+-[a-z]+[0-9]+' 'a region such as europe-west1'
	for name in SPANNER_INSTANCE SETTLE_FUNCTION RECONCILE_FUNCTION SPANNER_BACKUP_SCHEDULE; do
		matches "$name" '[a-z][a-z0-9-]{1,48}[a-z0-9]' '3 to 50 lower-case letters, digits and dashes, starting with a letter'
	done
	matches SPANNER_DATABASE '[a-z][a-z0-9_-]{0,28}[a-z0-9]' '2 to 30 lower-case letters, digits, _ and -, starting with a letter'
	for name in PAYOUTS_TOPIC RECONCILE_TOPIC DEAD_LETTER_TOPIC DEAD_LETTER_SUBSCRIPTION RECONCILE_JOB \
		BANK_TOKEN_SECRET BANK_PROFILE_SECRET; do
		matches "$name" '[A-Za-z][A-Za-z0-9_-]{2,254}' '3 to 255 letters, digits, _ and -, starting with a letter'
	done
	matches PAYOUT_SCHEMA '([A-Za-z][A-Za-z0-9_.-]{2,254})?' 'a name of 3 to 255 characters, or empty'
	for name in SETTLE_ACCOUNT RECONCILE_ACCOUNT TRIGGER_ACCOUNT BUILD_ACCOUNT OPERATOR_ACCOUNT; do
		matches "$name" '[a-z][a-z0-9-]{4,28}[a-z0-9]' '6 to 30 lower-case letters, digits and dashes, starting with a letter'
	done
	number MAX_DELIVERY_ATTEMPTS 5 100
	number BANK_CONCURRENCY 1 1000
	for name in SETTLE RECONCILE; do
		number "${name}_CONCURRENCY" 1 1000
		number "${name}_MIN_INSTANCES" 0 1000
		number "${name}_MAX_INSTANCES" 1 1000
		ordered "${name}_MIN_INSTANCES" "${name}_MAX_INSTANCES"
	done
	matches BANK_URL '(https://[^[:space:]|,]+)?' 'an https URL, or empty for no bank'
	matches OTEL_EXPORTER_OTLP_ENDPOINT '(https://[^[:space:]|,]+)?' 'an https URL, or empty'
	[[ -z $BANK_URL || -z $BANK_PROFILE_FILE || -f $BANK_PROFILE_FILE ]] || fault "BANK_PROFILE_FILE: no file $BANK_PROFILE_FILE"
	[[ -d $MONITORING_DIR || -d $ROOT/$MONITORING_DIR ]] || fault "MONITORING_DIR: no directory $MONITORING_DIR"
	for name in PUBLISHERS OPERATORS; do
		members "$name" '[A-Za-z]+:.+' 'IAM members such as group:payouts@example.com'
	done
	members ALERT_CHANNELS 'projects/[^/]+/notificationChannels/[^/]+' 'projects/P/notificationChannels/N'
	check_token "${BANK_TOKEN_FILE-}"
	matches DEFAULT_CURRENCY '([A-Z]{3})?' 'an ISO 4217 code such as EUR, or empty'
	matches LOG_LEVEL 'DEBUG|INFO|WARNING|ERROR' 'DEBUG, INFO, WARNING or ERROR'
	for name in SPANNER_BACKUP_CRON RECONCILE_CRON; do
		cron "$name"
	done
	check_runtime
}

# check_names checks that resources of one kind have different names.
check_names() {
	distinct PAYOUTS_TOPIC RECONCILE_TOPIC DEAD_LETTER_TOPIC
	distinct SETTLE_FUNCTION RECONCILE_FUNCTION
	distinct SETTLE_ACCOUNT RECONCILE_ACCOUNT TRIGGER_ACCOUNT BUILD_ACCOUNT OPERATOR_ACCOUNT
	distinct BANK_TOKEN_SECRET BANK_PROFILE_SECRET
}

# cron NAME checks the form of a schedule.
cron() {
	local value='([0-9]{1,2}|[A-Z]{3})'
	local item="([*]|$value(-$value)?)(/[0-9]{1,2})?"
	matches "$1" "$item(,$item)*( $item(,$item)*){4}" "cron's five fields such as '0 3 * * *'"
}

# check_runtime checks that the runtime has at least the Go version of go.mod.
check_runtime() {
	local least
	least=$(sed -nE 's/^go 1\.([0-9]+).*/\1/p' "$ROOT/go.mod")
	matches RUNTIME 'go1[0-9]{2}' "a Go runtime such as go1$least"
	sound RUNTIME || return 0
	((10#${RUNTIME#go1} >= least)) || fault_in RUNTIME "RUNTIME is $RUNTIME; go.mod needs go1$least or later"
}

# check_spanner checks Spanner's rules: processing units in hundreds up to 1000 and then in thousands, and an edition that
# supports the instance configuration.
check_spanner() {
	matches SPANNER_CONFIG '(regional|dual-region|custom)-[a-z0-9-]*[a-z0-9]|(nam|eur|asia)(-(nam|eur|asia))*[0-9]+' \
		'an instance configuration such as regional-europe-west1, nam3 or custom-mine'
	matches SPANNER_EDITION 'STANDARD|ENTERPRISE|ENTERPRISE_PLUS' 'STANDARD, ENTERPRISE or ENTERPRISE_PLUS'
	number SPANNER_PROCESSING_UNITS 100 1000000
	if sound SPANNER_PROCESSING_UNITS; then
		matches SPANNER_PROCESSING_UNITS '[1-9]00|[1-9][0-9]*000' '100 to 900 in hundreds, or thousands'
	fi
	sound SPANNER_CONFIG SPANNER_EDITION || return 0
	case $SPANNER_CONFIG:$SPANNER_EDITION in
	regional-*:* | custom-*:ENTERPRISE | *:ENTERPRISE_PLUS) ;;
	custom-*:*) fault "SPANNER_CONFIG is $SPANNER_CONFIG and SPANNER_EDITION $SPANNER_EDITION; it needs ENTERPRISE or ENTERPRISE_PLUS" ;;
	*) fault "SPANNER_CONFIG is $SPANNER_CONFIG and SPANNER_EDITION $SPANNER_EDITION; it needs ENTERPRISE_PLUS" ;;
	esac
}

# check_instance SETTLE|RECONCILE checks Cloud Run's rules for the size of an instance: less than one CPU with one request at
# a time, or 1, 2, 4, 6 or 8 CPUs, each with a range of memory.
check_instance() {
	local cpu=${1}_CPU memory=${1}_MEMORY concurrency=${1}_CONCURRENCY least=128 most
	matches "$cpu" '0[.][0-9]{1,3}|[12468]' '0.08 to 0.999, or 1, 2, 4, 6 or 8'
	matches "$memory" '[1-9][0-9]{0,5}[MG]i' 'mebibytes or gibibytes, such as 512Mi or 1Gi'
	if sound "$memory" && (($(mebibytes "${!memory}") < 128 || $(mebibytes "${!memory}") > 32768)); then
		fault_in "$memory" "$memory is ${!memory}; expected 128Mi to 32Gi"
	fi
	sound "$cpu" || return 0
	case ${!cpu} in
	0.0 | 0.0[0-7]*) fault_in "$cpu" "$cpu is ${!cpu}; expected at least 0.08" ;;
	0.[0-4]*) most=512 ;;
	0.*) most=1024 ;;
	1) most=4096 ;;
	2) most=8192 ;;
	4) least=2048 most=16384 ;;
	6) least=4096 most=24576 ;;
	8) least=4096 most=32768 ;;
	esac
	sound "$cpu" || return 0
	if [[ ${!cpu} == 0.* ]] && sound "$concurrency" && ((10#${!concurrency} > 1)); then
		fault "$cpu is ${!cpu} and $concurrency ${!concurrency}; less than one CPU needs 1"
	fi
	if sound "$memory" && (($(mebibytes "${!memory}") < least || $(mebibytes "${!memory}") > most)); then
		fault "$cpu is ${!cpu} and $memory ${!memory}; this CPU allows ${least}Mi to ${most}Mi"
	fi
}

# check_token FILE checks the file of --bank-token without reading it.
check_token() {
	[[ -n $1 ]] || return 0
	[[ -n $BANK_URL ]] || fault "--bank-token is set and BANK_URL is empty: set both or neither"
	[[ $1 == - || -r $1 && ! -d $1 ]] || fault "--bank-token: no readable file $1"
}

# check_times checks that a delivery ends before the function's timeout, and that before the ack deadline.
check_times() {
	local delivery='' exchange run=''
	duration SETTLE_TIMEOUT 10s 9m
	duration BANK_STATUS_TIMEOUT 1s 50s
	duration BANK_SEND_TIMEOUT 1s 50s
	duration SETTLE_FUNCTION_TIMEOUT 1s 9m
	duration RECONCILE_FUNCTION_TIMEOUT 1s 9m
	duration SETTLE_ACK_DEADLINE 10s 10m
	duration RECONCILE_ACK_DEADLINE 10s 10m
	duration RETRY_MIN 1s 600s
	duration RETRY_MAX 1s 600s
	ordered RETRY_MIN RETRY_MAX
	if sound SETTLE_TIMEOUT BANK_SEND_TIMEOUT; then
		delivery=$(($(seconds "$SETTLE_TIMEOUT") + $(seconds "$BANK_SEND_TIMEOUT") + 10))
	fi
	if sound BANK_STATUS_TIMEOUT BANK_SEND_TIMEOUT; then
		exchange=$(($(seconds "$BANK_STATUS_TIMEOUT") + $(seconds "$BANK_SEND_TIMEOUT") + 20))
		run=$((exchange * 2 > 120 ? exchange * 2 : 120))
	fi
	fits "a delivery (SETTLE_TIMEOUT + BANK_SEND_TIMEOUT + 10s)" "$delivery" SETTLE
	fits "a run of the reconciler (2m, or twice the bank's time limits plus 20s)" "$run" RECONCILE
}

# check_commit_delay checks Spanner's bound, in milliseconds.
check_commit_delay() {
	matches SPANNER_MAX_COMMIT_DELAY '(0|[1-9][0-9]{0,2})ms' 'milliseconds such as 100ms'
	sound SPANNER_MAX_COMMIT_DELAY || return 0
	((${SPANNER_MAX_COMMIT_DELAY%ms} <= 500)) || fault_in SPANNER_MAX_COMMIT_DELAY "SPANNER_MAX_COMMIT_DELAY is $SPANNER_MAX_COMMIT_DELAY; expected 0ms to 500ms"
}

fits() { # name, longest duration in seconds or empty if unknown, SETTLE or RECONCILE
	local timeout=${3}_FUNCTION_TIMEOUT deadline=${3}_ACK_DEADLINE before=${#FAULTS[@]}
	sound "$timeout" || return 0
	if [[ -n $2 ]] && (($2 >= $(seconds "${!timeout}"))); then
		fault "$1 takes up to ${2}s, and $timeout is ${!timeout}; set it longer, or Cloud Run stops the function at work"
	fi
	sound "$deadline" || return 0
	if (($(seconds "${!timeout}") >= $(seconds "${!deadline}"))); then
		fault "$timeout is ${!timeout} and $deadline ${!deadline}; set the deadline longer, or Pub/Sub redelivers during the first delivery"
	fi
	[[ -z $2 ]] || ((${#FAULTS[@]} > before)) ||
		report checked "$1 takes up to ${2}s < $timeout ${!timeout} < $deadline ${!deadline}"
}

# check_retention checks that a receipt lives at least as long as its message can come back.
check_retention() {
	local days back before
	before=${#FAULTS[@]}
	duration TOPIC_RETENTION 10m 31d
	duration SUBSCRIPTION_RETENTION 10m 31d
	duration DEAD_LETTER_RETENTION 10m 31d
	duration BANK_KEY_LIFETIME 10m 8760h
	duration BANK_VISIBILITY_LAG 0s 1h
	duration SPANNER_VERSION_RETENTION 1h 7d
	duration SPANNER_BACKUP_RETENTION 6h 366d
	if sound TOPIC_RETENTION SUBSCRIPTION_RETENTION && (($(seconds "$TOPIC_RETENTION") < $(seconds "$SUBSCRIPTION_RETENTION"))); then
		fault "TOPIC_RETENTION is $TOPIC_RETENTION and SUBSCRIPTION_RETENTION $SUBSCRIPTION_RETENTION; the topic must keep messages at least as long as the subscription"
	fi
	days=$(receipt_days)
	if [[ ! $days =~ ^[0-9]+$ ]]; then
		fault "no row deletion policy of settlement_receipts in $ROOT/schema"
		return
	fi
	if sound BANK_KEY_LIFETIME && ((days * 86400 < $(seconds "$BANK_KEY_LIFETIME"))); then
		fault "the schema keeps receipts for $days days, and the bank remembers a key for BANK_KEY_LIFETIME $BANK_KEY_LIFETIME"
	fi
	sound SUBSCRIPTION_RETENTION DEAD_LETTER_RETENTION TOPIC_RETENTION || return 0
	back=$(($(seconds "$SUBSCRIPTION_RETENTION") + $(seconds "$DEAD_LETTER_RETENTION") + $(seconds "$TOPIC_RETENTION") + 3 * 86400))
	if ((days * 86400 < back)); then
		fault "the schema keeps receipts for $days days, and a message can come back for $(((back + 86399) / 86400)) (SUBSCRIPTION_RETENTION + DEAD_LETTER_RETENTION + TOPIC_RETENTION + 3d)"
	fi
	((${#FAULTS[@]} > before)) ||
		report checked "receipts are kept for $days days >= the $(((back + 86399) / 86400)) in which a message can come back, and >= BANK_KEY_LIFETIME $BANK_KEY_LIFETIME"
}
