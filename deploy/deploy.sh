#!/usr/bin/env bash
# Deploys Settle Once to Google Cloud, or updates a deployment. It changes only resources that differ from the settings,
# so a second run changes nothing. See deploy/README.md.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: deploy/deploy.sh [--dry-run | --plan] [--bank-token FILE] [SETTINGS]

		  SETTINGS           file with the deployment's settings, default deploy/settings.env;
		                     begin with a copy of deploy/settings.env.example
		  --dry-run          print every command, run none; needs neither gcloud nor a network
		  --plan             read the project, list the resources to create and change
		  --bank-token FILE  add the bank's token in FILE to Secret Manager; - is standard input.
		                     Needed once, and to change the token
		  --help             print this text
	END
}

DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$DEPLOY")
source "$DEPLOY/lib/gcloud.sh"
source "$DEPLOY/lib/settings.sh"

BANK_TOKEN_FILE='' SETTINGS_FILE=''
while (($#)); do
	case $1 in
	--dry-run) MODE=dry-run ;;
	--plan) MODE=plan ;;
	--bank-token)
		[[ -n ${2-} ]] || usage_error "--bank-token needs a file, or - for standard input"
		BANK_TOKEN_FILE=$2 && shift
		;;
	--help | -h) usage && exit ;;
	-*) usage_error "unknown option $1" ;;
	*)
		[[ -z $SETTINGS_FILE ]] || usage_error "two settings files: $SETTINGS_FILE and $1"
		SETTINGS_FILE=$1
		;;
	esac
	shift
done

[[ -z $BANK_TOKEN_FILE || $BANK_TOKEN_FILE == - || $BANK_TOKEN_FILE == /* ]] || BANK_TOKEN_FILE=$PWD/$BANK_TOKEN_FILE

load_settings "${SETTINGS_FILE:-$DEPLOY/settings.env}"
check_settings
cd "$ROOT"
use_project

for file in "$DEPLOY"/steps/*.sh; do
	# shellcheck source=/dev/null
	source "$file"
done
summary
