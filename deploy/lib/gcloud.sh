# shellcheck shell=bash
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || {
	echo "${0##*/}: bash $BASH_VERSION found; 4.4 or later is needed" >&2
	exit 1
}

# How the steps speak: a resource is named, read, and created or changed where it has to be.
#
#   resource "topic payouts" "604800s" gcloud pubsub topics describe payouts --format='value(messageRetentionDuration)'
#   create gcloud pubsub topics create payouts --message-retention-duration=7d
#   change gcloud pubsub topics update payouts --message-retention-duration=7d
#
# Three modes. apply does it. plan reads, and says what apply would do. dry-run runs nothing: it prints all three
# commands, each with the case that it is for.
MODE=apply

# What was last read: the resource's label, how it is to be, how it is, and missing, different or same.
LABEL='' WANT='' HAVE='' VERDICT=''

CREATED=0 CHANGED=0 UNCHANGED=0

ERRORS=$(mktemp)
trap 'rm -f "$ERRORS"' EXIT

fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# wrong ends a script that was called wrongly.
wrong() {
	usage >&2
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 2
}

# step begins a part of a script. All that a dry run prints besides commands is a comment of bash.
step() {
	case $MODE in
	dry-run) printf '\n# == %s ==\n' "$*" ;;
	*) printf '\n== %s\n' "$*" ;;
	esac
}

# about explains what follows, to the reader of a dry run.
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

# show prints a command so that it can be read, and pasted.
show() {
	local word line='' flag
	for word; do
		flag=''
		if [[ -z $word || $word == *[!A-Za-z0-9_./:=@,%^+-]* ]]; then
			# --flag='the value' reads better than '--flag=the value'.
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

# fields writes values as --format='value(a,b,c)' does.
fields() {
	local IFS=$'\t'
	printf '%s\n' "$*"
}

# readable writes them for people.
readable() {
	local text=${1//$'\t'/, }
	text=${text//$'\n'/ }
	# In a dry run it is there to be compared with.
	[[ $MODE == dry-run ]] || ((${#text} <= 120)) || text="${text:0:120}…"
	printf '%s' "${text:-nothing}"
}

# digest prints 40 characters that stand for what it reads.
digest() {
	if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-40
}

# ask WHAT COMMAND... runs a command that only reads. Its answer is in ANSWER, empty where there is no such thing.
ANSWER=''
ask() {
	ANSWER=''
	if ANSWER=$("${@:2}" 2>"$ERRORS" </dev/null); then
		return
	fi
	# What a missing resource is called differs from one Google API to the other.
	if grep -qiE 'NOT_FOUND|not found|status=\[404\]|HTTPError 404' "$ERRORS"; then
		ANSWER=''
		return
	fi
	show "${@:2}" >&2
	cat "$ERRORS" >&2
	fail "could not read $1; nothing after it was done, and running this again goes on from here"
}

# resource LABEL WANT COMMAND... reads a resource and compares. COMMAND prints what WANT says, or fails where there is no
# such resource; nothing printed means the same.
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

# compare LABEL WANT HAVE is resource for what has been read already.
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

# create runs a command where the resource is missing.
create() { only_if missing 'if it is missing' creating "$@"; }

# change runs a command where the resource is there and not as it should be.
change() { only_if different "if that printed something else than: $(readable "$WANT")" changing "$@"; }

# ensure is create and change where one command does both.
ensure() {
	if [[ $MODE == dry-run ]]; then
		only_if '' "if that did not print: $(readable "$WANT")" '' "$@"
	elif [[ $VERDICT == missing ]]; then
		only_if missing '' creating "$@"
	else
		only_if different '' changing "$@"
	fi
}

only_if() { # verdict, the same in words, what is being done, command
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

# run runs a command that changes something, quietly unless it fails. Its standard input is passed on. A service account
# that was created a moment ago is not known everywhere at once, so what fails for that is tried again.
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
	fail "$LABEL: the command above failed; running this again goes on from here"
}

# value NAME PLACEHOLDER COMMAND... sets NAME to what a reading command prints. Where nothing is run, and in a plan
# where there is nothing to read yet, it is PLACEHOLDER.
value() {
	if [[ $MODE == dry-run ]]; then
		title "What follows goes by what this prints; where it is named, it is called $2:"
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

# pinned LABEL WANT WHY COMMAND... is resource for what cannot be changed: it ends the deployment where it differs.
pinned() {
	if [[ $MODE == dry-run ]]; then
		title "$1 cannot be changed; where there is one, this has to print: $(readable "$2")"
		show "${@:4}"
		return
	fi
	ask "$1" "${@:4}"
	if [[ -n ${ANSWER//$'\t'/} && $ANSWER != "$2" ]]; then
		fail "$1 is $(readable "$ANSWER"), and the settings say $(readable "$2"). $3"
	fi
}

# grant ROLE MEMBER GROUP RESOURCE [FLAG...] gives a role on one resource. GROUP are the words of the gcloud command
# group, such as "pubsub topics". Set CONDITION to title=…,expression=… for a conditional grant.
CONDITION=''
POLICY='' POLICY_OF=''
grant() {
	local role=$1 member=$2 on=$4 titled='' condition=() group
	read -ra group <<<"$3"
	# Groups whose policies can have conditions want to be told that there is none.
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

# summary closes a run.
summary() {
	case $MODE in
	apply) printf '\ndone: %d created, %d changed, %d unchanged\n' "$CREATED" "$CHANGED" "$UNCHANGED" ;;
	plan) printf '\nplan: %d to create, %d to change, %d unchanged; nothing was done\n' "$CREATED" "$CHANGED" "$UNCHANGED" ;;
	*) printf '\n# end of the dry run: nothing was run\n' ;;
	esac
}
