#!/usr/bin/env bash
# Gates, writes the report in every format and the job's summary. Ends well whatever the verdict, so that the comment
# is written too; the verdict's exit code is an output. Reads CHANGE, CHANGED_PATHS, BASE, MODEL, SUITE, POLICY.
set -uo pipefail

folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/gatekeeper.XXXXXX")
words=(gate --format text)
for format in json markdown sarif junit; do
  words+=(--report "$format=$folder/report.$format")
done
[ -z "${SUITE:-}" ] || words+=(--suite "$SUITE")
[ -z "${POLICY:-}" ] || words+=(--policy "$POLICY")
if [ -n "${CHANGE:-}" ]; then
  words+=("$CHANGE")
else
  words+=(--detected --base "$BASE")
  [ -z "${MODEL:-}" ] || words+=(--model "$MODEL")
  words+=(--)
  while IFS= read -r path; do
    [ -z "$path" ] || words+=("$path")
  done <<< "${CHANGED_PATHS:-}"
fi

{ gatekeeper "${words[@]}" 2>&1 >&3 | tee "$folder/messages" >&2; code=${PIPESTATUS[0]}; } 3>&1

if [ ! -s "$folder/report.markdown" ]; then
  # Refused, or the service did not answer: the messages are all there is to show.
  { echo "### gatekeeper: no verdict"; echo; sed 's/^/    /' "$folder/messages"; } > "$folder/report.markdown"
fi
cat "$folder/report.markdown" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
{
  echo "exit-code=$code"
  echo "markdown=$folder/report.markdown"
  echo "report=$folder/report.json"
  echo "sarif=$folder/report.sarif"
  echo "junit=$folder/report.junit"
} >> "$GITHUB_OUTPUT"
