#!/bin/bash
# Verify the store of each host in the file `hosts`, one host per line, and collect the answers in results/.
# For hosts of two architectures, choose the tarball by the answer of `ssh -n "$host" uname -m`.
tarball=rmqstore-VERSION-linux-x86_64.tar.gz
mkdir -p results
while read -r host; do
  ssh -n "$host" 'mkdir -p /opt/rmqstore' &&
    ssh "$host" 'tar -xz --strip-components=1 -C /opt/rmqstore' < "$tarball" &&
    ssh -n "$host" 'nice -n 19 /opt/rmqstore/rmqstore verify /data/rocketmq/store -c /etc/rocketmq/broker.conf \
      --json --jobs 2 --max-rate 50M --metrics /var/lib/node_exporter/rmqstore-verify.prom' > "results/$host.json"
  case $? in
    0 | 1 | 4) ;; # verified
    *) echo "$host: not verified" >&2 ;;
  esac
done < hosts
