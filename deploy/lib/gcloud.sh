# shellcheck shell=bash
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || {
	echo "${0##*/}: bash $BASH_VERSION found; install 4.4 or later" >&2
	exit 1
}

# The commands of the steps: read a resource, create it if it is missing, change it if it differs.
#
#   resource "topic payouts" "604800s" gcloud pubsub topics describe payouts --format='value(messageRetentionDuration)'
#   create gcloud pubsub topics create payouts --message-retention-duration=7d
#   change gcloud pubsub topics update payouts --message-retention-duration=7d
#
# Three modes: apply changes the project, plan reads it and lists the changes, dry-run runs nothing and prints all three
# commands with the case for each.
MODE=apply

# The resource read last: its label, wanted state, state, and missing, different or same.
LABEL='' WANT='' HAVE='' VERDICT=''

CREATED=0 CHANGED=0 UNCHANGED=0

ERRORS=$(mktemp)
trap 'rm -f "$ERRORS"' EXIT

fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# usage_error ends a script with wrong arguments.
usage_error() {
	usage >&2
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 2
}

# step begins a part of a script. A dry run prints bash: all text but the commands is comments.
step() {
	case $MODE in
	dry-run) printf '\n# == %s ==\n' "$*" ;;
	*) printf '\n== %s\n' "$*" ;;
	esac
}

# about explains the next resource in a dry run.
ABOUT=''
about() {
	[[ $MODE == dry-run ]] || return 0
	printf '\n# %s\n' "$1"
	ABOUT=$1
}

# title begins a resource in a dry run.
title() {
	[[ -n $ABOUT ]] || echo
	printf '# %s\n' "$1"
	ABOUT=''
}

# report prints a line about a resource.
report() {
	case $MODE in
	dry-run) printf '# %s: %s\n' "$1" "$2" ;;
	*) printf '   %-12s %s\n' "$1" "$2" ;;
	esac
}

# show prints a command, folded and quoted for a shell.
show() {
	local word line='' flag
	for word; do
		flag=''
		if [[ -z $word || $word == *[!A-Za-z0-9_./:=@,%^+-]* ]]; then
			# Quote the value only: --flag='a value', not '--flag=a value'.
			[[ ! $word =~ ^(--[a-z-]+=)(.*)$ ]] || flag=${BASH_REMATCH[1]} word=${BASH_REMATCH[2]}
			if [[ $word == *"'"* ]]; then
				word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//\$/\\\$}
				word="\"${word//\`/\\\`}\""
			else
				word="'$word'"
			fi
		fi
		word=$flag$word
		if [[ -z $line ]]; then
			line=$word
		elif ((${#line} + ${#word} > 110)); then
			printf '%s \\\n' "$line"
			line="    $word"
		else
			line+=" $word"
		fi
	done
	printf '%s\n' "$line"
}

# fields prints values in the format of --format='value(a,b,c)'.
fields() {
	local IFS=$'\t'
	printf '%s\n' "$*"
}

# readable prints the same values for people.
readable() {
	local text=${1//$'\t'/, }
	text=${text//$'\n'/ }
	# A dry run prints the whole value, to compare with.
	[[ $MODE == dry-run ]] || ((${#text} <= 120)) || text="${text:0:120}…"
	printf '%s' "${text:-nothing}"
}

# digest prints the first 40 characters of the SHA-256 of its input.
digest() {
	if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-40
}

# ask LABEL COMMAND... runs a read command. ANSWER is its output, empty if the resource does not exist.
ANSWER=''
ask() {
	ANSWER=''
	if ANSWER=$("${@:2}" 2>"$ERRORS" </dev/null); then
		return
	fi
	# Google's APIs report a missing resource in different words.
	if grep -qiE 'NOT_FOUND|not found|status=\[404\]|HTTPError 404' "$ERRORS"; then
		ANSWER=''
		return
	fi
	show "${@:2}" >&2
	cat "$ERRORS" >&2
	fail "could not read $1; stopped here, run this script again to continue"
}

# resource LABEL WANT COMMAND... reads a resource and compares the output with WANT. The resource is missing if COMMAND
# fails with "not found" or prints nothing.
resource() {
	LABEL=$1 WANT=$2
	if [[ $MODE == dry-run ]]; then
		title "$1"
		show "${@:3}"
		return
	fi
	ask "$1" "${@:3}"
	compare "$1" "$2" "$ANSWER"
}

# compare LABEL WANT HAVE is resource for a state that was read before.
compare() {
	LABEL=$1 WANT=$2 HAVE=$3
	if [[ $MODE == dry-run ]]; then
		title "$LABEL"
		return
	fi
	if [[ $HAVE == "$WANT" ]]; then
		VERDICT=same
		UNCHANGED=$((UNCHANGED + 1))
		report unchanged "$LABEL"
	elif [[ -z $HAVE ]]; then
		VERDICT=missing
	else
		VERDICT=different
	fi
}

# create runs a command if the resource is missing.
create() { only_if missing 'if it is missing' creating "$@"; }

# change runs a command if the resource differs.
change() { only_if different "if that did not print: $(readable "$WANT")" changing "$@"; }

# ensure is create and change with one command for both.
ensure() {
	if [[ $MODE == dry-run ]]; then
		only_if '' "if that did not print: $(readable "$WANT")" '' "$@"
	elif [[ $VERDICT == missing ]]; then
		only_if missing '' creating "$@"
	else
		only_if different '' changing "$@"
	fi
}

only_if() { # verdict, the same for a dry run, creating or changing, command
	if [[ $MODE == dry-run ]]; then
		printf '# %s:\n' "$2"
		show "${@:4}"
		return
	fi
	[[ $VERDICT == "$1" ]] || return 0
	local label=$LABEL
	[[ $VERDICT == missing ]] || label+=": $(readable "$HAVE") -> $(readable "$WANT")"
	if [[ $MODE == plan ]]; then
		report "would ${3%ing}e" "$label"
		show "${@:4}" | sed 's/^/      /'
	else
		report "$3" "$label"
		run "${@:4}"
	fi
	if [[ $1 == missing ]]; then CREATED=$((CREATED + 1)); else CHANGED=$((CHANGED + 1)); fi
}

# run runs a write command with this script's standard input, and prints its output only if it fails. IAM needs time to
# propagate a new service account, so run retries a command that does not find one.
run() {
	local attempt
	for attempt in 1 2 3 4 5 6; do
		if "$@" >"$ERRORS" 2>&1; then
			return
		fi
		grep -qiE 'service account .*does not exist' "$ERRORS" || break
		((attempt == 6)) || sleep 10
	done
	show "$@" >&2
	cat "$ERRORS" >&2
	fail "$LABEL: the command above failed; run this script again to continue"
}

# value NAME PLACEHOLDER COMMAND... sets NAME to the output of a read command. In a dry run, and in a plan if the resource
# does not exist yet, it is PLACEHOLDER.
value() {
	if [[ $MODE == dry-run ]]; then
		title "The commands below use $2 for the output of:"
		show "${@:3}"
		ANSWER=
	else
		ask "$2" "${@:3}"
	fi
	if [[ -z $ANSWER && $MODE != apply ]]; then
		ANSWER=$2
	fi
	printf -v "$1" '%s' "$ANSWER"
}

# pinned LABEL WANT WHY COMMAND... ends the deployment if an immutable property differs.
pinned() {
	if [[ $MODE == dry-run ]]; then
		title "$1 cannot change; if it exists, this has to print: $(readable "$2")"
		show "${@:4}"
		return
	fi
	ask "$1" "${@:4}"
	if [[ -n ${ANSWER//$'\t'/} && $ANSWER != "$2" ]]; then
		fail "$1 is $(readable "$ANSWER"), and the settings have $(readable "$2"). $3"
	fi
}

# grant ROLE MEMBER GROUP RESOURCE [FLAG...] grants a role on one resource. GROUP is the gcloud command group, such as
# "pubsub topics". CONDITION is title=…,expression=… for a conditional grant.
CONDITION=''
POLICY='' POLICY_OF=''
grant() {
	local role=$1 member=$2 on=$4 titled='' condition=() group
	read -ra group <<<"$3"
	# Groups with conditional policies need --condition=None for an unconditional grant.
	case $3 in
	pubsub\ *) ;;
	*) condition=("--condition=${CONDITION:-None}") ;;
	esac
	[[ -z $CONDITION ]] || titled=${CONDITION#*title=} titled=${titled%%,*}
	LABEL="$role on ${group[-1]%s} $on for ${member#*:}"
	local read=(gcloud "${group[@]}" get-iam-policy "$on" "${@:5}" --flatten='bindings[].members'
		--format='value(bindings.role,bindings.members,bindings.condition.title)')
	local add=(gcloud "${group[@]}" add-iam-policy-binding "$on" "${@:5}" --role="$role" --member="$member" "${condition[@]}")
	if [[ $POLICY_OF != "$3 $on" && $MODE == dry-run ]]; then
		title "the policy of ${group[-1]%s} $on"
		show "${read[@]}"
	elif [[ $POLICY_OF != "$3 $on" ]]; then
		ask "the policy of ${group[-1]%s} $on" "${read[@]}"
		POLICY=$ANSWER
	fi
	POLICY_OF="$3 $on"
	local want have=''
	want=$(fields "$role" "$member" "$titled")
	! grep -qxF -- "$want" <<<"$POLICY" || have=$want
	compare "$LABEL" "$want" "$have"
	create "${add[@]}"
}

# summary prints the counts at the end of a run.
summary() {
	case $MODE in
	apply) printf '\ndone: %d created, %d changed, %d unchanged\n' "$CREATED" "$CHANGED" "$UNCHANGED" ;;
	plan) printf '\nplan: %d to create, %d to change, %d unchanged; nothing was changed\n' "$CREATED" "$CHANGED" "$UNCHANGED" ;;
	*) printf '\n# end of the dry run: nothing was run\n' ;;
	esac
}
