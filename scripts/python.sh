#!/bin/sh
# Print the Python that the environment is made with: $PYTHON if set, else the first of the usual names that is new
# enough. 3.11 comes first because the lock was resolved and tested with it.
for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
done
echo "gatekeeper needs Python 3.11, 3.12 or 3.13; none of these is one: ${PYTHON:-python3.11 python3 python3.12 python3.13}." \
    "Install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11" >&2
exit 3
