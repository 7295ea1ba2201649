#!/bin/sh
# Install the browser that tests open the page in, where that can be: as root, with Debian's packages.
set -eu
for program in chromium chromium-browser google-chrome; do
    if command -v "$program" > /dev/null; then
        exit 0
    fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "no browser here: it takes root and Debian's packages; missing: chromium" >&2
    exit 1
fi
echo "installing chromium" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq -y --no-install-recommends chromium > /dev/null
