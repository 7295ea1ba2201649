#!/bin/sh
# What both images hold: the committed files of the repository, the main environment and those of the
# tools that cannot share it, as locked under envs/. In the image, as root, with a network.
set -eu
export DEBIAN_FRONTEND=noninteractive
home=/opt/ptq-dynamics

apt-get update -q
# GPTQModel compiles parts of itself.
apt-get install -q -y --no-install-recommends build-essential git make
rm -rf /var/lib/apt/lists/*

# Of another user here, and perhaps of another one than who runs the image: records name the commit.
git config --system --add safe.directory /tmp/repository
git config --system --add safe.directory "$home"
git clone -q --no-hardlinks /tmp/repository "$home"

cd "$home"
export PIP_NO_CACHE_DIR=1
make install
.venv/bin/snakemake --cores 1 --config scale=smoke -- \
    envs/gptqmodel/manifest.json envs/autogptq/manifest.json
