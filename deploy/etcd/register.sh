#!/bin/sh
# Keeps an instance's address in etcd for as long as the instance says that it is ready, so that frontends find it:
#
#     register.sh ENDPOINTS KEY ADDRESS [SECONDS]
#     register.sh 10.0.0.5:2379,10.0.0.6:2379 /parapet/replicas/host-1 10.0.0.1:9001 10
#
# The key has a lease of SECONDS, which is renewed three times as often. A lease that was lost (this host was cut off, or etcd was
# away) is taken anew. When the instance is not ready, or this ends by SIGTERM, the key goes at once. Needs curl and base64; speaks
# etcd's JSON gateway (3.4 or later) without passwords.
#
# Within TLS, write https:// before the endpoints, or before ADDRESS; ETCD_CURL and INSTANCE_CURL are then curl's options:
#
#     ETCD_CURL="--cacert ca.pem --cert etcd-client.crt --key etcd-client.key" register.sh https://10.0.0.5:2379 ...
set -u

if [ $# -lt 3 ]; then
    echo "usage: register.sh [https://]HOST:PORT[,..] KEY [https://]IP:PORT [SECONDS]" >&2
    exit 2
fi
endpoints=$(echo "$1" | tr ',' ' ')
key=$(printf %s "$2" | base64 -w 0)
value=$(printf %s "$3" | base64 -w 0)
address=$3
seconds=${4:-10}
pause=$(((seconds + 2) / 3))
lease=

url() {
    case $1 in
    *://*) echo "$1" ;;
    *) echo "http://$1" ;;
    esac
}

# What the first member says that answers.
ask() {
    for endpoint in $endpoints; do
        # shellcheck disable=SC2086 # options are words
        curl -sf ${ETCD_CURL:-} --connect-timeout 1 -m 2 "$(url "$endpoint")/v3/$1" -d "$2" && return 0
    done
    return 1
}

register() {
    lease=$(ask lease/grant "{\"TTL\":$seconds}" | sed -n 's/.*"ID":"\([0-9]*\)".*/\1/p')
    [ -n "$lease" ] || return 1
    if ask kv/put "{\"key\":\"$key\",\"value\":\"$value\",\"lease\":\"$lease\"}" >/dev/null; then
        echo "registered $address with lease $lease"
    else
        lease=
    fi
}

# A lease that is gone is answered without a time to live; no answer says nothing about it.
renew() {
    said=$(ask lease/keepalive "{\"ID\":\"$lease\"}") || return 0
    case $said in
    *'"TTL"'*) ;;
    *)
        echo "the lease $lease of $address was lost"
        lease=
        register
        ;;
    esac
}

withdraw() {
    [ -n "$lease" ] || return 0
    ask lease/revoke "{\"ID\":\"$lease\"}" >/dev/null
    echo "withdrew $address"
    lease=
}

trap 'withdraw; exit 0' TERM INT

while :; do
    # shellcheck disable=SC2086 # options are words
    if curl -sf ${INSTANCE_CURL:-} -m 2 "$(url "$address")/v2/health/ready" -o /dev/null; then
        if [ -n "$lease" ]; then renew; else register; fi
    else
        withdraw
    fi
    # In the background, so that a signal is not kept waiting.
    if [ -n "$lease" ]; then sleep "$pause" & else sleep 1 & fi
    wait $!
done
