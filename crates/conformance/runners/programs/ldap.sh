# slapd and the ldap tools: thousands of entries added, searched by several at once, a client and the server killed.

_configure() {
    mkdir -p directory
    cat >slapd.conf <<END
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $PWD/slapd.pid
database mdb
suffix "dc=example"
rootdn "cn=admin,dc=example"
rootpw secret
directory $PWD/directory
dbnosync
maxsize 200000000
END
}
_start() {
    _configure
    serve slapd -d 0 -h ldap://127.0.0.1:5319 -f slapd.conf
    slapd=$!
    await_port 5319
}
_entries() {
    printf 'dn: dc=example\nobjectClass: dcObject\nobjectClass: organization\no: example\ndc: example\n\n'
    for n in $(seq 1000); do
        printf 'dn: cn=person %d,dc=example\nobjectClass: inetOrgPerson\ncn: person %d\nsn: %d\ndescription: %0300d\n\n' "$n" "$n" "$n" "$n"
    done
}
_search() { timeout 60 ldapsearch -x -LLL -H ldap://127.0.0.1:5319 -b dc=example -o ldif-wrap=no "$@" 2>&1; }
add_and_search() {
    _start
    _entries >entries
    timeout 100 ldapadd -x -H ldap://127.0.0.1:5319 -D cn=admin,dc=example -w secret -f entries | grep -c adding
    _search '(objectClass=inetOrgPerson)' sn | sort | sha256sum
    local searchers=()
    for one in 1 2 3 4; do
        for _ in 1 2 3 4 5; do _search | sort | sha256sum; done >found.$one &
        searchers+=($!)
    done
    wait "${searchers[@]}"
    cat found.* | uniq -c
    for n in $(seq 50); do _search "(cn=person $n)" sn; done | sha256sum
}
paged() {
    _start
    _search -E pr=100/noprompt '(objectClass=inetOrgPerson)' sn | grep -c '^sn'
}
ended_server() {
    _start
    (sleep 1; kill $slapd) &
    timeout 30 sh -c 'while ldapsearch -x -LLL -H ldap://127.0.0.1:5319 -b dc=example sn >/dev/null 2>&1; do :; done; echo ended'
    wait $slapd
    echo "slapd $?"
}
