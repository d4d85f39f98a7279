# shellcheck shell=bash
step "The bank's secrets"
# shellcheck disable=SC2034 # the next step uses these versions
BANK_TOKEN_VERSION='' BANK_PROFILE_VERSION=''
newest() { # NAME, secret: sets NAME to the newest enabled version
	value "$1" "$1" gcloud secrets versions list "$2" --filter=state=ENABLED --sort-by=~createTime --limit=1 \
		--format='value(name.basename())'
}
secret() { # name
	resource "secret $1" "$1" gcloud secrets describe "$1" --format='value(name.basename())'
	create gcloud secrets create "$1" --replication-policy=automatic
	grant roles/secretmanager.secretAccessor "serviceAccount:$SETTLE_EMAIL" secrets "$1"
	grant roles/secretmanager.secretAccessor "serviceAccount:$RECONCILE_EMAIL" secrets "$1"
	grant roles/secretmanager.secretAccessor "serviceAccount:$OPERATOR_EMAIL" secrets "$1" # settlectl decide and reconcile
}

if [[ -z $BANK_URL ]]; then
	report none 'BANK_URL is empty: no bank'
else
	secret "$BANK_TOKEN_SECRET"
	if [[ $MODE == dry-run ]]; then
		about "With --bank-token, the token on standard input:"
		show gcloud secrets versions add "$BANK_TOKEN_SECRET" --data-file=-
	elif [[ -n $BANK_TOKEN_FILE ]]; then
		# Standard input keeps the token out of command lines and files. $(…) removes a trailing newline.
		token=$(cat -- "$BANK_TOKEN_FILE")
		[[ -n $token ]] || fail "no token in $BANK_TOKEN_FILE"
		compare "version of secret $BANK_TOKEN_SECRET" new ''
		create gcloud secrets versions add "$BANK_TOKEN_SECRET" --data-file=- < <(printf '%s' "$token")
		unset token
	fi
	newest BANK_TOKEN_VERSION "$BANK_TOKEN_SECRET"
	[[ -n $BANK_TOKEN_VERSION ]] || fail "secret $BANK_TOKEN_SECRET has no version: run deploy.sh --bank-token FILE"

	if [[ -n $BANK_PROFILE_FILE ]]; then
		about "The profile is not secret, but the upload has only code, so a mounted secret passes it to the function."
		secret "$BANK_PROFILE_SECRET"
		resource "the bank's profile" "$(<"$BANK_PROFILE_FILE")" \
			gcloud secrets versions access latest --secret="$BANK_PROFILE_SECRET"
		ensure gcloud secrets versions add "$BANK_PROFILE_SECRET" --data-file="$BANK_PROFILE_FILE"
		newest BANK_PROFILE_VERSION "$BANK_PROFILE_SECRET"
	fi
fi
