#!/usr/bin/env bash
# Takes a deployment of Settle Once down. It asks first. Without --with-data everything that money depends on stays: the
# database with its backups, the topics and the dead letters.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: deploy/teardown.sh [--dry-run] [--with-data] [SETTINGS]

		  SETTINGS     the deployment's settings; default deploy/settings.env
		  --with-data  delete the database, the topics and the dead letters too, for good
		  --dry-run    print every command, run none
		  --help       this
	END
}

DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$DEPLOY")
source "$DEPLOY/lib/gcloud.sh"
source "$DEPLOY/lib/settings.sh"

WITH_DATA='' SETTINGS_FILE=''
while (($#)); do
	case $1 in
	--dry-run) MODE=dry-run ;;
	--with-data) WITH_DATA=yes ;;
	--help | -h) usage && exit ;;
	-*) wrong "there is no option $1" ;;
	*)
		[[ -z $SETTINGS_FILE ]] || wrong "two files with settings: $SETTINGS_FILE and $1"
		SETTINGS_FILE=$1
		;;
	esac
	shift
done
load_settings "${SETTINGS_FILE:-$DEPLOY/settings.env}"
check_settings
cd "$ROOT"

# confirm asks for the project's name.
confirm() {
	local answer
	printf '\nThis deletes from project %s: the functions with their triggers and what waits in their subscriptions,\n' "$PROJECT_ID"
	printf 'the scheduler job, the secrets, the service accounts and the monitoring.\n'
	if [[ -n $WITH_DATA ]]; then
		printf 'It also deletes THE DATABASE %s, the topics and the dead letters. They cannot be brought back.\n' "$SPANNER_DATABASE"
	else
		printf 'The database, its backups, the topics and the dead letters stay. What waited in a subscription can be brought\n'
		printf 'back from its topic for %s.\n' "$TOPIC_RETENTION"
	fi
	printf 'Type the name of the project to go on: '
	IFS= read -r answer || true
	[[ $answer == "$PROJECT_ID" ]] || fail "nothing was deleted"
}
[[ $MODE == dry-run ]] || confirm
use_project

# gone LABEL READ... -- DELETE... deletes what is there.
gone() {
	local label=$1 read=()
	shift
	while [[ $1 != -- ]]; do
		read+=("$1")
		shift
	done
	shift
	LABEL=$label
	if [[ $MODE == dry-run ]]; then
		title "$label"
		show "${read[@]}"
		echo '# if it is there:'
		show "$@"
		return
	fi
	ask "$label" "${read[@]}"
	if [[ -z $ANSWER ]]; then
		report absent "$label"
		return
	fi
	report deleting "$label"
	run "$@"
}

# ours_gone LABEL READ... -- DELETE... deletes each thing of ours that READ lists with its digest; DELETE gets its name as
# its last word.
ours_gone() {
	local label=$1 read=() name digest
	shift
	while [[ $1 != -- ]]; do
		read+=("$1")
		shift
	done
	shift
	LABEL=$label
	if [[ $MODE == dry-run ]]; then
		title "$label"
		show "${read[@]}"
		echo '# for each NAME that it prints with a digest:'
		show "$@" NAME
		return
	fi
	ask "$label" "${read[@]}"
	while IFS=$'\t' read -r name digest; do
		[[ $digest =~ [0-9a-f]{40} ]] || continue
		report deleting "$label ${name##*/}"
		run "$@" "$name"
	done <<<"$ANSWER"
}

step "What calls and watches the functions"
gone "job $RECONCILE_JOB" gcloud scheduler jobs describe "$RECONCILE_JOB" --location="$REGION" --format='value(name)' -- \
	gcloud scheduler jobs delete "$RECONCILE_JOB" --location="$REGION"
ours_gone alert gcloud alpha monitoring policies list --format='value(name,userLabels.settleonce_digest)' -- \
	gcloud alpha monitoring policies delete
ours_gone dashboard gcloud monitoring dashboards list --format='value(name,labels.settleonce_digest)' -- \
	gcloud monitoring dashboards delete
ours_gone metric gcloud logging metrics list --format='value(name,description)' -- \
	gcloud logging metrics delete

step "The functions, with their triggers and subscriptions"
for name in "$SETTLE_FUNCTION" "$RECONCILE_FUNCTION"; do
	gone "function $name" gcloud functions describe "$name" --region="$REGION" --format='value(name)' -- \
		gcloud functions delete "$name" --gen2 --region="$REGION"
done

step "Secrets"
for name in "$BANK_TOKEN_SECRET" "$BANK_PROFILE_SECRET"; do
	gone "secret $name" gcloud secrets describe "$name" --format='value(name)' -- gcloud secrets delete "$name"
done

step "Service accounts"
revoke() { # role, email
	gone "$1 on project $PROJECT_ID for $2" gcloud projects get-iam-policy "$PROJECT_ID" --flatten='bindings[].members' \
		--filter="bindings.role=$1 AND bindings.members=serviceAccount:$2" --format='value(bindings.role)' -- \
		gcloud projects remove-iam-policy-binding "$PROJECT_ID" --role="$1" --member="serviceAccount:$2" --condition=None
}
revoke roles/cloudbuild.builds.builder "$BUILD_EMAIL"
revoke roles/pubsub.viewer "$OPERATOR_EMAIL"
revoke roles/cloudfunctions.viewer "$OPERATOR_EMAIL"
for email in "$SETTLE_EMAIL" "$RECONCILE_EMAIL" "$TRIGGER_EMAIL" "$BUILD_EMAIL" "$OPERATOR_EMAIL"; do
	gone "service account $email" gcloud iam service-accounts describe "$email" --format='value(email)' -- \
		gcloud iam service-accounts delete "$email"
done

step "Data"
if [[ -z $WITH_DATA ]]; then
	report kept "database $SPANNER_DATABASE and its backups, topics $PAYOUTS_TOPIC, $RECONCILE_TOPIC and $DEAD_LETTER_TOPIC, the dead letters"
	exit
fi
gone "subscription $DEAD_LETTER_SUBSCRIPTION" \
	gcloud pubsub subscriptions describe "$DEAD_LETTER_SUBSCRIPTION" --format='value(name)' -- \
	gcloud pubsub subscriptions delete "$DEAD_LETTER_SUBSCRIPTION"
for name in "$PAYOUTS_TOPIC" "$RECONCILE_TOPIC" "$DEAD_LETTER_TOPIC"; do
	gone "topic $name" gcloud pubsub topics describe "$name" --format='value(name)' -- gcloud pubsub topics delete "$name"
done
if [[ -n $PAYOUT_SCHEMA ]]; then
	gone "message schema $PAYOUT_SCHEMA" gcloud pubsub schemas describe "$PAYOUT_SCHEMA" --format='value(name)' -- \
		gcloud pubsub schemas delete "$PAYOUT_SCHEMA"
fi

database=("$SPANNER_DATABASE" --instance="$SPANNER_INSTANCE")
gone "deletion protection of database $SPANNER_DATABASE" \
	gcloud spanner databases describe "${database[@]}" --format='value(enableDropProtection)' -- \
	gcloud spanner databases update "${database[@]}" --no-enable-drop-protection
gone "database $SPANNER_DATABASE" gcloud spanner databases describe "${database[@]}" --format='value(name)' -- \
	gcloud spanner databases delete "${database[@]}"

about "The instance stays while there are other databases in it, or backups: delete those by hand, if at all."
value OTHERS OTHERS gcloud spanner databases list --instance="$SPANNER_INSTANCE" --format='value(name)'
value BACKUPS BACKUPS gcloud spanner backups list --instance="$SPANNER_INSTANCE" --format='value(name)'
if [[ $MODE != dry-run && -n $OTHERS$BACKUPS ]]; then
	report kept "instance $SPANNER_INSTANCE, for $(readable "$OTHERS $BACKUPS")"
else
	gone "instance $SPANNER_INSTANCE" gcloud spanner instances describe "$SPANNER_INSTANCE" --format='value(name)' -- \
		gcloud spanner instances delete "$SPANNER_INSTANCE"
fi
