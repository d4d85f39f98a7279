# Lists the objects that DDL defines, one per line, to compare a file with a database:
#
#   table NAME
#   column TABLE NAME
#   index NAME
#   role NAME
#   grant PRIVILEGE TABLE ROLE, with PRIVILEGE such as UPDATE(column) for a column
#   other STATEMENT
#
# With -v have=FILE, which is such a list, it prints the statements that define an object outside the list.
BEGIN {
	while (have != "" && (getline line < have) > 0) known[line] = 1
}
{
	sub(/--.*/, "") # a comment may contain a semicolon
	text = text " " $0
}
END {
	count = split(text, statements, ";")
	for (s = 1; s <= count; s++) {
		statement = statements[s]
		gsub(/[ \t\r]+/, " ", statement)
		gsub(/^ | $|`/, "", statement)
		if (statement == "") continue
		found = 0
		define(statement)
		lacking = 0
		for (i = 1; i <= found; i++) {
			if (have == "") print objects[i]
			else if (!(objects[i] in known)) lacking = 1
		}
		if (lacking) print statement ";"
	}
}

function define(statement) {
	if (match(statement, /^CREATE TABLE (IF NOT EXISTS )?/)) table(after(statement))
	else if (match(statement, /^CREATE (UNIQUE |NULL_FILTERED )*INDEX (IF NOT EXISTS )?/)) add("index " word(after(statement)))
	else if (match(statement, /^ALTER TABLE [A-Za-z0-9_]+ ADD COLUMN (IF NOT EXISTS )?/)) added(statement, after(statement))
	else if (match(statement, /^CREATE ROLE (IF NOT EXISTS )?/)) add("role " word(after(statement)))
	else if (statement ~ /^GRANT [A-Za-z0-9_, ()]+ ON TABLE .* TO ROLE /) grant(statement)
	else add("other " statement)
}

function add(object) { objects[++found] = object }

# added adds the column of an ALTER TABLE; rest begins with the column's name.
function added(statement, rest) { add("column " word(substr(statement, 13)) " " word(rest)) }

# after returns the text after the latest match.
function after(text) { return substr(text, RSTART + RLENGTH) }

function word(text) {
	match(text, /^[A-Za-z0-9_]+/)
	return substr(text, 1, RLENGTH)
}

# table adds a table and its columns: the first word between the outermost commas.
function table(text,   name, at, char, depth, part) {
	name = word(text)
	add("table " name)
	for (at = length(name) + 1; at <= length(text); at++) {
		char = substr(text, at, 1)
		if (char == ")") depth--
		if (depth == 1 && char == "," || depth == 0 && char == ")") {
			sub(/^ /, "", part)
			if (part != "" && part !~ /^(CONSTRAINT|CHECK|FOREIGN) /) add("column " name " " word(part))
			part = ""
		} else if (depth > 0) part = part char
		if (depth == 0 && char == ")") return
		if (char == "(") depth++
	}
}

# grant adds each privilege, by column if the statement names columns, on each table for each role.
function grant(text,   p, t, r, privileges, tables, roles) {
	privileged(substr(text, 7, index(text, " ON TABLE ") - 7), privileges)
	text = substr(text, index(text, " ON TABLE ") + 10)
	split(substr(text, 1, index(text, " TO ROLE ") - 1), tables, ", ")
	split(substr(text, index(text, " TO ROLE ") + 9), roles, ", ")
	for (r in roles) for (t in tables) for (p in privileges) add("grant " privileges[p] " " tables[t] " " roles[r])
}

# privileged splits a list such as SELECT, UPDATE(a, b) into SELECT, UPDATE(a) and UPDATE(b).
function privileged(list, into,   item, privilege, columns, names, count, c, n) {
	while (match(list, /^[A-Z]+ ?(\([^)]*\))?/)) {
		item = substr(list, 1, RLENGTH)
		list = substr(list, RLENGTH + 1)
		privilege = word(item)
		columns = substr(item, length(privilege) + 1)
		sub(/^ ?, ?/, "", list)
		gsub(/[() ]/, "", columns)
		count = split(columns, names, ",")
		for (c = 1; c <= count; c++) into[++n] = privilege "(" names[c] ")"
		if (count == 0) into[++n] = privilege
	}
}
