#!/usr/bin/env bash
# Posts the report as one comment on a pull request, or updates the one that an earlier run posted for the same key.
# Reads REPORT (a file), NUMBER (the pull request), COMMENT_KEY, GITHUB_REPOSITORY and GH_TOKEN.
set -euo pipefail

# A hash holds no character that ends an HTML comment, and shows nobody the address of the service.
key=$(printf '%s' "${COMMENT_KEY:-}" | git hash-object --stdin)
marker="<!-- gatekeeper $key -->"
most=60000   # GitHub takes 65,536 characters
body=$(mktemp)
echo "$marker" > "$body"
# Whole lines only; what a cut leaves folded open is closed.
LC_ALL=C awk -v most="$most" '
  { size += length($0) + 1 }
  size > most { is_cut = 1; exit }
  { print }
  /^<details>/ { open++ }
  /^<\/details>/ { open-- }
  END {
    if (!is_cut) exit
    while (open-- > 0) print "\n</details>"
    print "\nThe rest is in the summary of the job."
  }' "$REPORT" >> "$body"

comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
# Anybody can write a comment that begins with the marker. GraphQL, since REST tells a workflow's token no user.
login=$(gh api graphql --field 'query={viewer{login}}' --jq .data.viewer.login)
own=".[] | select(.user.login == \"$login\" and (.body | startswith(\"$marker\"))) | .id"
# All pages are read before the first is taken: a reader that ends early would fail the pipe.
earlier=$(gh api --paginate "$comments" --jq "$own")
earlier=${earlier%%$'\n'*}
if [ -n "$earlier" ]; then
  gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$earlier" --field "body=@$body" > /dev/null
else
  gh api --method POST "$comments" --field "body=@$body" > /dev/null
fi
