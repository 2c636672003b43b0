# Programs of SunRPC: rpcbind and rpcinfo, rusersd, rstatd, ypserv, rquotad, nfs-ganesha, kadmind, over TCP, UDP and AF_UNIX. Under shunt each case runs
# with libtirpc's layers as they are and collapsed (--rpc on), and with one side alone under shunt, collapsed; on the kernel four times alike.

# The function $1 in a host of its own: network, /run, processes, which end with it. Its servers are started by `_serving`.
_host() {
    local sides under=${LD_PRELOAD:-} collapsed=${LD_PRELOAD:-} servers clients
    [[ $collapsed != *libshunt.so* ]] || collapsed+=:${collapsed%libshunt.so*}libshunt_tirpc.so
    for sides in plain collapsed servers clients; do
        servers=$collapsed clients=$collapsed
        case $sides in
            plain) servers=$under clients=$under ;;
            servers) clients='' ;;
            clients) servers='' ;;
        esac
        echo "-- $sides"
        LD_PRELOAD='' SERVERS=$servers CLIENTS=$clients WHY=$under timeout 100 unshare -m -n -p -u -f --kill-child --mount-proc \
            bash -c "$(declare -f await tell_why _serving "$1")
                mount -t tmpfs run /run; ip link set lo up; export SHUNT_UDP=on SHUNT_UNIX=on
                [ -z \"\$CLIENTS\" ] || export LD_PRELOAD=\$CLIENTS
                $1
                LD_PRELOAD=\$WHY tell_why" 2>&1
    done
}

# Becomes the server that the words call, in a shell of its own.
_serving() {
    if [ -n "$SERVERS" ]; then export LD_PRELOAD=$SERVERS; else unset LD_PRELOAD; fi
    exec "$@"
}

_binds() {
    _serving rpcbind -f -w &
    await rpcinfo -p 127.0.0.1
    rpcinfo -p 127.0.0.1 | sort
    for transport in tcp udp; do
        rpcinfo -T $transport 127.0.0.1 100000 2>&1
        for version in 2 3 4 9; do rpcinfo -T $transport 127.0.0.1 100000 $version 2>&1; done
    done
    # By the socket /run/rpcbind.sock.
    rpcinfo | sed 's/[0-9]*$//' | sort
    rpcinfo -T tcp 127.0.0.1 200000 1 2>&1
}
rpcbind_and_rpcinfo() { _host _binds; }

_asks_users() {
    _serving rpcbind -f -w &
    await rpcinfo -p 127.0.0.1
    (_serving rpc.rusersd)
    (_serving rpc.rstatd)
    await rpcinfo -T udp 127.0.0.1 100001 1
    await rpcinfo -T udp 127.0.0.1 100002 3
    rusers -l 127.0.0.1 | wc -l
    rup 127.0.0.1 | sed 's/[0-9].*//'
    for _ in $(seq 20); do rup 127.0.0.1 | wc -l; done | uniq -c
}
users_and_loads() { _host _asks_users; }

_asks_maps() {
    mount -t tmpfs maps /var/yp
    mkdir -p /var/yp/binding /var/yp/lab
    touch /var/yp/nicknames
    echo 'domain lab server 127.0.0.1' >yp.conf
    [ -e /etc/yp.conf ] && mount --bind yp.conf /etc/yp.conf
    domainname lab
    seq 10000 | sed 's/.*/key& value number &/' | /usr/lib/yp/makedbm - /var/yp/lab/things
    _serving rpcbind -f -w &
    await rpcinfo -p 127.0.0.1
    _serving ypserv -f &
    await rpcinfo -T udp 127.0.0.1 100004 2
    ypbind -n &
    await ypwhich
    ypcat -k things | sort | sha256sum
    ypmatch key1 key77 key10000 things 2>&1
    ypmatch nokey things 2>&1
    yppoll -h 127.0.0.1 things | head -1
    # Several at once, and the server ended under them.
    for one in 1 2 3 4; do
        for _ in 1 2 3 4 5; do ypcat -k things | sort | sha256sum; done >found.$one &
        asking+=($!)
    done
    wait "${asking[@]}"
    cat found.* | uniq -c
    kill %2
    ypmatch key5 things >/dev/null 2>&1
    echo "after the end $?"
}
maps() { _host _asks_maps; }

_asks_quotas() {
    _serving rpcbind -f -w &
    await rpcinfo -p 127.0.0.1
    _serving rpc.rquotad -F >/dev/null 2>&1 &
    await rpcinfo -T tcp 127.0.0.1 100011 2
    for version in 1 2 3; do
        rpcinfo -T udp 127.0.0.1 100011 $version 2>&1
        rpcinfo -T tcp 127.0.0.1 100011 $version 2>&1
    done
    for transport in tcp udp; do ./asks-quotas $transport "$PWD"; done
}
# What quota(1) asks for a file system of another host, by what rpcgen makes of the protocol's definition: of a hundred users.
quotas() {
    cat >asks-quotas.c <<END
#include "rquota.h"
#include <stdio.h>
int main(int count, char **words) {
    CLIENT *client = clnt_create("127.0.0.1", RQUOTAPROG, RQUOTAVERS, words[1]);
    if (!client) return clnt_pcreateerror("rquotad"), 1;
    client->cl_auth = authunix_create_default();
    int known[4] = {0};
    for (int user = 0; user < 100; user++) {
        getquota_args of = {words[2], user};
        getquota_rslt *found = user % 2 ? rquotaproc_getquota_1(&of, client) : rquotaproc_getactivequota_1(&of, client);
        if (!found) return clnt_perror(client, "rquotad"), 1;
        known[found->status & 3]++;
    }
    printf("%s: %d have quotas, %d have none, %d may not be asked for\n", words[1], known[Q_OK], known[Q_NOQUOTA], known[Q_EPERM]);
    clnt_destroy(client);
    return 0;
}
END
    cp /usr/include/rpcsvc/rquota.x .
    rm -f rquota.h rquota_xdr.c rquota_clnt.c
    rpcgen -h -o rquota.h rquota.x && rpcgen -c -o rquota_xdr.c rquota.x && rpcgen -l -o rquota_clnt.c rquota.x
    gcc -w -I/usr/include/tirpc -I. -o asks-quotas asks-quotas.c rquota_xdr.c rquota_clnt.c -ltirpc
    _host _asks_quotas
}

_asks_mounts() {
    mkdir -p /run/ganesha export
    mount -t tmpfs state /var/lib/nfs
    mount -t tmpfs files export
    cat >ganesha.conf <<END
NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; NFS_Port = 2049; MNT_Port = 20048; }
EXPORT { Export_Id = 1; Path = $PWD/export; Pseudo = /lab; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP, UDP; SecType = sys; FSAL { Name = VFS; } }
END
    _serving rpcbind -f -w &
    await rpcinfo -p 127.0.0.1
    _serving ganesha.nfsd -F -L ganesha.log -f ganesha.conf -p /run/ganesha/pid >/dev/null 2>&1 &
    await rpcinfo -T tcp 127.0.0.1 100005 3
    showmount -e 127.0.0.1 | sed 's|/.*/|/|'
    for program in 100003 100005; do
        for transport in tcp udp; do rpcinfo -T $transport 127.0.0.1 $program 3; done
    done
    for _ in $(seq 50); do showmount -e 127.0.0.1 | wc -l; done | uniq -c
    # Files by clients that are programs themselves (libnfs), one and four at once.
    local at="nfs://127.0.0.1$PWD/export"
    nfs-cp large "$at/large" 2>&1 | grep -v copied
    cmp large export/large && echo written
    for number in 1 2 3 4; do
        for _ in 1 2 3 4 5; do nfs-cat "$at/large" | sha256sum; done >read.$number &
        reading+=($!)
        for part in 1 2 3 4 5; do nfs-cp large "$at/copy.$number.$part" 2>&1 | grep -v copied; done &
        reading+=($!)
    done
    wait "${reading[@]}"
    cat read.* | uniq -c
    sha256sum export/copy.* | cut -d' ' -f1 | uniq -c
    nfs-ls "$at/" | awk '{print $1, $5, $NF}' | sort
    nfs-cat "$at/none" 2>&1 | wc -l
}
mounts() { _host _asks_mounts; }

# Principals by kadmin, whose calls are wrapped by RPCSEC_GSS.
_administers() {
    rm -rf kerberos
    mkdir kerberos
    cat >kerberos/krb5.conf <<END
[libdefaults]
    default_realm = LAB
    dns_lookup_kdc = false
    rdns = false
    dns_canonicalize_hostname = false
[realms]
    LAB = {
        kdc = 127.0.0.1:8888
        admin_server = 127.0.0.1:8749
    }
END
    cat >kerberos/kdc.conf <<END
[kdcdefaults]
    kdc_ports = 8888
    kdc_tcp_ports = 8888
[realms]
    LAB = {
        database_name = $PWD/kerberos/principal
        key_stash_file = $PWD/kerberos/stash
        acl_file = $PWD/kerberos/acl
        kadmind_port = 8749
        kpasswd_port = 8464
    }
END
    echo '*/admin@LAB *' >kerberos/acl
    export KRB5_CONFIG=$PWD/kerberos/krb5.conf KRB5_KDC_PROFILE=$PWD/kerberos/kdc.conf
    {
        kdb5_util create -s -P master -r LAB
        kadmin.local -q 'addprinc -pw secret root/admin'
        kadmin.local -q 'addprinc -randkey kadmin/127.0.0.1'
        _serving krb5kdc -n &
        _serving kadmind -nofork &
    } >/dev/null 2>&1
    await kadmin -p root/admin -w secret -q listprincs
    { for n in $(seq 50); do echo "addprinc -pw password$n user$n"; done; } | kadmin -p root/admin -w secret 2>&1 | grep -c created
    kadmin -p root/admin -w secret -q listprincs 2>/dev/null | sort
    kadmin -p root/admin -w secret -q 'getprinc user7' 2>/dev/null | grep -E '^(Principal|Key|Maximum)'
    kadmin -p root/admin -w wrong -q listprincs 2>&1 | grep -o 'Incorrect password'
    kadmin -p user7 -w password7 -q 'delprinc -force user8' 2>&1 | grep -o 'requires.*privilege'
}
administration() { _host _administers; }
