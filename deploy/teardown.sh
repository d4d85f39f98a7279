#!/usr/bin/env bash
# Deletes a deployment of Settle Once, after a confirmation. Without --with-data it keeps the database with its backups,
# the topics and the dead letters.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: deploy/teardown.sh [--dry-run] [--with-data] [SETTINGS]

		  SETTINGS     file with the deployment's settings, default deploy/settings.env
		  --with-data  also delete the database, the topics and the dead letters
		  --dry-run    print every command, run none
		  --help       print this text
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
	-*) usage_error "unknown option $1" ;;
	*)
		[[ -z $SETTINGS_FILE ]] || usage_error "two settings files: $SETTINGS_FILE and $1"
		SETTINGS_FILE=$1
		;;
	esac
	shift
done
load_settings "${SETTINGS_FILE:-$DEPLOY/settings.env}"
check_settings
cd "$ROOT"

# confirm asks for the project's ID.
confirm() {
	local answer
	printf '\nThis deletes from project %s: the functions with their triggers, subscriptions and waiting messages,\n' "$PROJECT_ID"
	printf 'the scheduler job, the secrets, the service accounts and the monitoring.\n'
	if [[ -n $WITH_DATA ]]; then
		printf 'It also deletes THE DATABASE %s, the topics and the dead letters. They cannot be restored.\n' "$SPANNER_DATABASE"
	else
		printf 'The database, its backups, the topics and the dead letters stay. The topic keeps the waiting messages\n'
		printf 'for %s.\n' "$TOPIC_RETENTION"
	fi
	printf 'Type the ID of the project to continue: '
	IFS= read -r answer || true
	[[ $answer == "$PROJECT_ID" ]] || fail "nothing was deleted"
}
[[ $MODE == dry-run ]] || confirm
use_project

# delete LABEL READ... -- DELETE... runs DELETE if READ finds the resource.
delete() {
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
		echo '# if it exists:'
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

# delete_ours LABEL READ... -- DELETE... deletes each resource that READ lists with a digest of deploy.sh; DELETE gets its
# name as the last argument.
delete_ours() {
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
		echo '# for each NAME printed with a digest:'
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

step "Scheduler and monitoring"
delete "job $RECONCILE_JOB" gcloud scheduler jobs describe "$RECONCILE_JOB" --location="$REGION" --format='value(name)' -- \
	gcloud scheduler jobs delete "$RECONCILE_JOB" --location="$REGION"
delete_ours alert gcloud alpha monitoring policies list --format='value(name,userLabels.settleonce_digest)' -- \
	gcloud alpha monitoring policies delete
delete_ours dashboard gcloud monitoring dashboards list --format='value(name,labels.settleonce_digest)' -- \
	gcloud monitoring dashboards delete
delete_ours metric gcloud logging metrics list --format='value(name,description)' -- \
	gcloud logging metrics delete

step "Functions, with their triggers and subscriptions"
for name in "$SETTLE_FUNCTION" "$RECONCILE_FUNCTION"; do
	delete "function $name" gcloud functions describe "$name" --region="$REGION" --format='value(name)' -- \
		gcloud functions delete "$name" --gen2 --region="$REGION"
done

step "Secrets"
for name in "$BANK_TOKEN_SECRET" "$BANK_PROFILE_SECRET"; do
	delete "secret $name" gcloud secrets describe "$name" --format='value(name)' -- gcloud secrets delete "$name"
done

step "Service accounts"
revoke() { # role, email
	delete "$1 on project $PROJECT_ID for $2" gcloud projects get-iam-policy "$PROJECT_ID" --flatten='bindings[].members' \
		--filter="bindings.role=$1 AND bindings.members=serviceAccount:$2" --format='value(bindings.role)' -- \
		gcloud projects remove-iam-policy-binding "$PROJECT_ID" --role="$1" --member="serviceAccount:$2" --condition=None
}
revoke roles/cloudbuild.builds.builder "$BUILD_EMAIL"
revoke roles/pubsub.viewer "$OPERATOR_EMAIL"
revoke roles/cloudfunctions.viewer "$OPERATOR_EMAIL"
for email in "$SETTLE_EMAIL" "$RECONCILE_EMAIL" "$TRIGGER_EMAIL" "$BUILD_EMAIL" "$OPERATOR_EMAIL"; do
	delete "service account $email" gcloud iam service-accounts describe "$email" --format='value(email)' -- \
		gcloud iam service-accounts delete "$email"
done

step "Data"
if [[ -z $WITH_DATA ]]; then
	report kept "database $SPANNER_DATABASE and its backups, topics $PAYOUTS_TOPIC, $RECONCILE_TOPIC and $DEAD_LETTER_TOPIC, the dead letters"
	exit
fi
delete "subscription $DEAD_LETTER_SUBSCRIPTION" \
	gcloud pubsub subscriptions describe "$DEAD_LETTER_SUBSCRIPTION" --format='value(name)' -- \
	gcloud pubsub subscriptions delete "$DEAD_LETTER_SUBSCRIPTION"
for name in "$PAYOUTS_TOPIC" "$RECONCILE_TOPIC" "$DEAD_LETTER_TOPIC"; do
	delete "topic $name" gcloud pubsub topics describe "$name" --format='value(name)' -- gcloud pubsub topics delete "$name"
done
if [[ -n $PAYOUT_SCHEMA ]]; then
	delete "message schema $PAYOUT_SCHEMA" gcloud pubsub schemas describe "$PAYOUT_SCHEMA" --format='value(name)' -- \
		gcloud pubsub schemas delete "$PAYOUT_SCHEMA"
fi

database=("$SPANNER_DATABASE" --instance="$SPANNER_INSTANCE")
delete "deletion protection of database $SPANNER_DATABASE" \
	gcloud spanner databases describe "${database[@]}" --format='value(enableDropProtection)' -- \
	gcloud spanner databases update "${database[@]}" --no-enable-drop-protection
delete "database $SPANNER_DATABASE" gcloud spanner databases describe "${database[@]}" --format='value(name)' -- \
	gcloud spanner databases delete "${database[@]}"

about "The instance stays while it has other databases or backups: delete those by hand first."
value OTHERS OTHERS gcloud spanner databases list --instance="$SPANNER_INSTANCE" --format='value(name)'
value BACKUPS BACKUPS gcloud spanner backups list --instance="$SPANNER_INSTANCE" --format='value(name)'
if [[ $MODE != dry-run && -n $OTHERS$BACKUPS ]]; then
	report kept "instance $SPANNER_INSTANCE, which has $(readable "$OTHERS $BACKUPS")"
else
	delete "instance $SPANNER_INSTANCE" gcloud spanner instances describe "$SPANNER_INSTANCE" --format='value(name)' -- \
		gcloud spanner instances delete "$SPANNER_INSTANCE"
fi
