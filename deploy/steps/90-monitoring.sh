# shellcheck shell=bash
step "Monitoring"
# MONITORING_DIR has metrics/NAME.yaml for gcloud logging metrics, with a description of one line; dashboard.json; and
# alerts/*.yaml or *.json for gcloud alpha monitoring policies. In all of them ${NAME} stands for a setting, or for
# PROJECT_NUMBER, SETTLE_SUBSCRIPTION or RECONCILE_SUBSCRIPTION.
#
# This step applies a copy of each file with the settings filled in. The copy's digest is in the metric's description, and
# in a label of the dashboard and of the policy.
FILLED=$(mktemp -d)
trap 'rm -rf "$ERRORS" "$FILLED"' EXIT

# filled FILE fills in the settings. It sets COPY to the copy's name and DIGEST to its digest.
filled() {
	local text name
	text=$(<"$1")
	for name in "${SETTINGS[@]}" PROJECT_NUMBER SETTLE_SUBSCRIPTION RECONCILE_SUBSCRIPTION; do
		text=${text//"\${$name}"/"${!name}"}
	done
	[[ ! $text =~ \$\{([A-Z_]+)\} ]] || fail "$1: unknown setting ${BASH_REMATCH[1]}"
	DIGEST=$(printf '%s\n' "$text" "$ALERT_CHANNELS" | digest)
	COPY=$FILLED/$(basename "$1")
	printf '%s\n' "$text" >"$COPY"
	if [[ $MODE == dry-run ]]; then
		COPY=$1 DIGEST=digest
	fi
}

# named FILE KEY prints the value of the first line that begins with the key, in YAML or JSON.
named() { sed -nE "s/^[ \t]*\"?$2\"? *: *\"?([^\"]*[^\",])\"?,? *\$/\1/p" "$1" | head -n 1; }

# column FIRST NUMBER ROWS prints one column of the row that begins with FIRST.
column() {
	awk -F '\t' -v title="$1" -v number="$2" '$1 == title { print $number; exit }' <<<"$3"
}

metric() { # file
	local name description
	name=$(basename "$1" .yaml)
	filled "$1"
	description="$(sed -n 's/^description: *//p' "$1") [$DIGEST]"
	[[ $description != ' ['* ]] || fail "$1 has no line with description: and a text"
	[[ $MODE == dry-run ]] || sed -i.bak "s/^description: .*/& [$DIGEST]/" "$COPY"
	compare "metric $name" "$description" "$(column "$name" 2 "$METRICS")"
	create gcloud logging metrics create "$name" --config-from-file="$COPY"
	change gcloud logging metrics update "$name" --config-from-file="$COPY"
}

# called KIND TITLE ROWS compares the resource of that title with DIGEST, and sets NAME to its name.
called() {
	local digest
	NAME=$(column "$2" 2 "$3")
	digest=$(column "$2" 3 "$3")
	compare "$1 $2" "$DIGEST" "${NAME:+${digest:-without digest}}"
	[[ $MODE != dry-run ]] || NAME=NAME
}

# dashboard inserts the digest and, for an update, the etag of the existing dashboard after the first brace.
dashboard() { # file
	local title etag
	title=$(named "$1" displayName)
	filled "$1"
	called dashboard "$title" "$DASHBOARDS"
	etag=$(column "$title" 4 "$DASHBOARDS")
	[[ $MODE == dry-run ]] ||
		sed -i.bak "1s/{/{ \"labels\": {\"settleonce_digest\": \"$DIGEST\"},${etag:+ \"etag\": \"$etag\",}/" "$COPY"
	create gcloud monitoring dashboards create --config-from-file="$COPY"
	change gcloud monitoring dashboards update "$NAME" --config-from-file="$COPY"
}

alert() { # file
	local title
	title=$(named "$1" displayName)
	filled "$1"
	called alert "$title" "$ALERTS"
	create gcloud alpha monitoring policies create --policy-from-file="$COPY" \
		--user-labels="settleonce_digest=$DIGEST" --notification-channels="${ALERT_CHANNELS// /,}"
	change gcloud alpha monitoring policies update "$NAME" --policy-from-file="$COPY" \
		--update-user-labels="settleonce_digest=$DIGEST" --set-notification-channels="${ALERT_CHANNELS// /,}"
}

each() { # function, files
	local file
	for file in "${@:2}"; do
		[[ ! -f $file ]] || "$1" "$file"
	done
}
about "Metrics come first, because the dashboard and the alerts use them."
value METRICS METRICS gcloud logging metrics list --format='value(name,description)'
each metric "$MONITORING_DIR"/metrics/*.yaml
value DASHBOARDS DASHBOARDS gcloud monitoring dashboards list --format='value(displayName,name,labels.settleonce_digest,etag)'
each dashboard "$MONITORING_DIR"/dashboard.json
value ALERTS ALERTS gcloud alpha monitoring policies list --format='value(displayName,name,userLabels.settleonce_digest)'
each alert "$MONITORING_DIR"/alerts/*.yaml "$MONITORING_DIR"/alerts/*.json
