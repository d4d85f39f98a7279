# shellcheck shell=bash
step "Spanner"
about "Without NONE the instance's default schedule would back up each new database a second time."
resource "instance $SPANNER_INSTANCE" "$(fields "$SPANNER_PROCESSING_UNITS" "$SPANNER_EDITION")" \
	gcloud spanner instances describe "$SPANNER_INSTANCE" --format='value(processingUnits,edition)'
create gcloud spanner instances create "$SPANNER_INSTANCE" --config="$SPANNER_CONFIG" --description='Settle Once' \
	--edition="$SPANNER_EDITION" --processing-units="$SPANNER_PROCESSING_UNITS" --default-backup-schedule-type=NONE
change gcloud spanner instances update "$SPANNER_INSTANCE" \
	--edition="$SPANNER_EDITION" --processing-units="$SPANNER_PROCESSING_UNITS"

database=("$SPANNER_DATABASE" --instance="$SPANNER_INSTANCE")
resource "database $SPANNER_DATABASE" "$SPANNER_DATABASE" \
	gcloud spanner databases describe "${database[@]}" --format='value(name.basename())'
create gcloud spanner databases create "${database[@]}"

about "Deletion protection, and point-in-time recovery for the version retention."
value SAFETY SAFETY gcloud spanner databases describe "${database[@]}" --format='value(enableDropProtection,versionRetentionPeriod)'
compare "deletion protection of database $SPANNER_DATABASE" True "$(cut -s -f 1 <<<"$SAFETY")"
ensure gcloud spanner databases update "${database[@]}" --enable-drop-protection
compare "version retention of database $SPANNER_DATABASE" "$SPANNER_VERSION_RETENTION" "$(cut -s -f 2 <<<"$SAFETY")"
ensure gcloud spanner databases ddl update "${database[@]}" \
	--ddl="ALTER DATABASE \`$SPANNER_DATABASE\` SET OPTIONS (version_retention_period = '$SPANNER_VERSION_RETENTION')"

about "The schema. Every statement can run twice."
value DDL DDL gcloud spanner databases ddl describe "${database[@]}"
lacking() { awk -v have=<(awk -f "$DEPLOY/lib/ddl.awk" <<<"$DDL") -f "$DEPLOY/lib/ddl.awk" "$1"; }
for file in schema/*.sql; do
	compare "schema $file" complete "$([[ -n $(lacking "$file") ]] || echo complete)"
	create gcloud spanner databases ddl update "${database[@]}" --ddl-file="$file"
done

about "Database roles. CREATE ROLE fails for an existing role, so only the missing statements run."
roles=$(lacking deploy/database_roles.sql)
compare "database roles" complete "$([[ -n $roles ]] || echo complete)"
create gcloud spanner databases ddl update "${database[@]}" --ddl="$roles"

resource "backup schedule $SPANNER_BACKUP_SCHEDULE" "$(fields "$SPANNER_BACKUP_CRON" "$(seconds "$SPANNER_BACKUP_RETENTION")s")" \
	gcloud spanner backup-schedules describe "$SPANNER_BACKUP_SCHEDULE" --database="$SPANNER_DATABASE" \
	--instance="$SPANNER_INSTANCE" --format='value(spec.cronSpec.text,retentionDuration)'
create gcloud spanner backup-schedules create "$SPANNER_BACKUP_SCHEDULE" --database="$SPANNER_DATABASE" \
	--instance="$SPANNER_INSTANCE" --backup-type=full-backup --cron="$SPANNER_BACKUP_CRON" \
	--retention-duration="$SPANNER_BACKUP_RETENTION"
change gcloud spanner backup-schedules update "$SPANNER_BACKUP_SCHEDULE" --database="$SPANNER_DATABASE" \
	--instance="$SPANNER_INSTANCE" --cron="$SPANNER_BACKUP_CRON" --retention-duration="$SPANNER_BACKUP_RETENTION"

about "The accounts use the database in their role only, without deletes and schema changes."
in_role() { # email, role
	grant roles/spanner.fineGrainedAccessUser "serviceAccount:$1" "spanner databases" "${database[@]}"
	CONDITION="title=$2,expression=resource.type == \"spanner.googleapis.com/DatabaseRole\" && resource.name.endsWith(\"/$2\")" \
		grant roles/spanner.databaseRoleUser "serviceAccount:$1" "spanner databases" "${database[@]}"
}
in_role "$SETTLE_EMAIL" settleonce_function
in_role "$RECONCILE_EMAIL" settleonce_function
in_role "$OPERATOR_EMAIL" settleonce_operator

about "The operator may also read all tables, the schema and the roles."
grant roles/spanner.databaseReader "serviceAccount:$OPERATOR_EMAIL" "spanner databases" "${database[@]}"
