#!/usr/bin/env bash
# What action.yml runs. Annotations go to the log, the summary to the job's page, Markdown and SARIF to files.
#   INVENTORY BASE STRICT PYTHON   inputs of the action
#   SGLFLEET                       a command to use instead of installing (for tests)
set -euo pipefail

folder="$RUNNER_TEMP/sglfleet"
mkdir -p "$folder"
if [ -z "${SGLFLEET:-}" ]; then
  "${PYTHON:-python3}" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet "$GITHUB_ACTION_PATH"
  SGLFLEET="$folder/venv/bin/sglfleet"
fi

words=(check "${INVENTORY:-inventory/prod.py}")
[ -z "${BASE:-}" ] || words+=(--base "$BASE")
[ "${STRICT:-false}" != true ] || words+=(--strict)

code=0
$SGLFLEET "${words[@]}" --format github || code=$?
$SGLFLEET "${words[@]}" --format markdown --output "$folder/check.md" || true
$SGLFLEET "${words[@]}" --format sarif --output "$folder/check.sarif" || true
cat "$folder/check.md" >>"$GITHUB_STEP_SUMMARY"
{
  echo "exit-code=$code"
  echo "markdown=$folder/check.md"
  echo "sarif=$folder/check.sarif"
} >>"$GITHUB_OUTPUT"
exit "$code"
