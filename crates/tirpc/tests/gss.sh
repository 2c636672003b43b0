# A realm of its own in a network of its own: `gss.sh PROGRAM NAME SERVERS_LIBRARIES CLIENTS_LIBRARIES CLIENTS_WORD ...`. Each row's output is out.NAME, what its
# programs say on the error stream server.NAME and client.NAME.
set -u
PATH=$PATH:/usr/sbin:/sbin
program=$1
shift
cat >krb5.conf <<END
[libdefaults]
    default_realm = LAB
    dns_lookup_kdc = false
    rdns = false
    dns_canonicalize_hostname = false
[realms]
    LAB = {
        kdc = 127.0.0.1:8888
    }
END
cat >kdc.conf <<END
[kdcdefaults]
    kdc_ports = 8888
    kdc_tcp_ports = 8888
[realms]
    LAB = {
        database_name = $PWD/principal
        key_stash_file = $PWD/stash
    }
END
export KRB5_CONFIG=$PWD/krb5.conf KRB5_KDC_PROFILE=$PWD/kdc.conf KRB5_KTNAME=$PWD/keytab KRB5CCNAME=FILE:$PWD/cache
ip link set lo up
{
    kdb5_util create -s -P master -r LAB
    kadmin.local -q 'addprinc -pw secret user'
    kadmin.local -q 'addprinc -randkey test/localhost'
    kadmin.local -q 'ktadd -k keytab test/localhost'
} >realm.log 2>&1
krb5kdc -n >>realm.log 2>&1 &
kdc=$!
for _ in $(seq 200); do echo secret | kinit user >>realm.log 2>&1 && break; sleep 0.05; done
status=0
while [ $# -gt 0 ]; do
    name=$1
    LD_PRELOAD=$2 timeout 60 "$program" server port.$name 2>server.$name &
    server=$!
    for _ in $(seq 500); do [ -s port.$name ] && break; sleep 0.02; done
    LD_PRELOAD=$3 timeout 60 "$program" client "$(cat port.$name)" $4 >out.$name 2>client.$name || status=1
    kill $server
    wait $server 2>>realm.log
    shift 4
done
kill $kdc
exit $status
