# shellcheck shell=bash
step "The bank's secrets"
# shellcheck disable=SC2034 # the functions are given these versions
BANK_TOKEN_VERSION='' BANK_PROFILE_VERSION=''
newest() { # NAME, secret: the newest version that can be used
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
	report none 'BANK_URL is empty: there is no bank'
else
	secret "$BANK_TOKEN_SECRET"
	if [[ $MODE == dry-run ]]; then
		about "with --bank-token, the token going in by standard input:"
		show gcloud secrets versions add "$BANK_TOKEN_SECRET" --data-file=-
	elif [[ -n $BANK_TOKEN_FILE ]]; then
		# On no command line and in no file of ours; a line's end at its end is not part of it.
		token=$(cat -- "$BANK_TOKEN_FILE")
		[[ -n $token ]] || fail "there is no token in $BANK_TOKEN_FILE"
		compare "version of secret $BANK_TOKEN_SECRET" new ''
		create gcloud secrets versions add "$BANK_TOKEN_SECRET" --data-file=- < <(printf '%s' "$token")
		unset token
	fi
	newest BANK_TOKEN_VERSION "$BANK_TOKEN_SECRET"
	[[ -n $BANK_TOKEN_VERSION ]] || fail "secret $BANK_TOKEN_SECRET has no version: say deploy.sh --bank-token FILE"

	if [[ -n $BANK_PROFILE_FILE ]]; then
		about "Not a secret, but only the function's own code is uploaded; it comes to the function as a mounted file."
		secret "$BANK_PROFILE_SECRET"
		resource "the bank's profile" "$(<"$BANK_PROFILE_FILE")" \
			gcloud secrets versions access latest --secret="$BANK_PROFILE_SECRET"
		ensure gcloud secrets versions add "$BANK_PROFILE_SECRET" --data-file="$BANK_PROFILE_FILE"
		newest BANK_PROFILE_VERSION "$BANK_PROFILE_SECRET"
	fi
fi
