#!/usr/bin/env bash
# Deploys Settle Once to Google Cloud, or brings a deployment up to date. What is there and right stays as it is: a
# second run changes nothing. deploy/README.md says more.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: deploy/deploy.sh [--dry-run | --plan] [--bank-token FILE] [SETTINGS]

		  SETTINGS           the deployment's names and figures; default deploy/settings.env,
		                     which begins as a copy of deploy/settings.env.example
		  --dry-run          print every command, run none; needs neither gcloud nor a network
		  --plan             read what is there, and say what would be created and changed
		  --bank-token FILE  add the bank's token in FILE to Secret Manager; - is standard input.
		                     Needed once, and to change it
		  --help             this
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
		[[ -n ${2-} ]] || wrong "--bank-token needs a file, or - for standard input"
		BANK_TOKEN_FILE=$2 && shift
		;;
	--help | -h) usage && exit ;;
	-*) wrong "there is no option $1" ;;
	*)
		[[ -z $SETTINGS_FILE ]] || wrong "two files with settings: $SETTINGS_FILE and $1"
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
