#!/bin/sh
# Install what a SLURM cluster for tests takes, where that can be: as root, with Debian's packages.
set -eu
programs="setpriv munged slurmctld slurmd"
PATH="$PATH:/usr/sbin:/sbin"
missing=""
for program in $programs; do
    command -v "$program" > /dev/null || missing="$missing $program"
done
if [ -z "$missing" ]; then
    exit 0
elif [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "no SLURM cluster here: it takes root and Debian's packages; missing:$missing" >&2
    exit 1
fi
echo "installing slurm-wlm and munge" >&2
export DEBIAN_FRONTEND=noninteractive
# Nothing of it is to be started as a service of the system.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
status=0
apt-get install -qq -y --no-install-recommends \
    slurm-wlm munge > /dev/null || status=1
rm -f /usr/sbin/policy-rc.d
exit $status
