#!/usr/bin/env bash
# Posts the report as one comment on a pull request, or updates the one that an earlier run posted.
# Reads REPORT (a file), NUMBER (the pull request), GITHUB_REPOSITORY and GH_TOKEN.
set -euo pipefail

marker="<!-- gatekeeper -->"
most=60000   # GitHub takes 65,536 characters
body=$(mktemp)
{ echo "$marker"; head -c "$most" "$REPORT"; } > "$body"
if [ "$(wc -c < "$REPORT")" -gt "$most" ]; then
  printf '\n\nThe rest is in the summary of the job.\n' >> "$body"
fi

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
