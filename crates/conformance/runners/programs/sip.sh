# Kamailio: SIP over TCP, whose processes pass connections to each other (SCM_RIGHTS); SIPp's calls through it.
_kamailio() { # CHILDREN
    cat >kamailio.cfg <<END
#!KAMAILIO
children=$1
tcp_children=$1
fork=yes
log_stderror=yes
debug=0
disable_tcp=no
listen=tcp:127.0.0.1:5471
tcp_accept_no_cl=yes
tcp_connection_lifetime=3605
tcp_max_connections=2048
auto_aliases=no
mpath="/usr/lib/x86_64-linux-gnu/kamailio/modules"
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "maxfwd.so"
request_route {
    if (is_method("INVITE")) { record_route(); }
    if (has_totag()) { if (loose_route()) { t_relay(); exit; } }
    \$du = "sip:127.0.0.1:5472;transport=tcp";
    t_relay();
    exit;
}
END
    serve kamailio -f kamailio.cfg -DD -E -m 64 -M 8 -Y "$PWD"
    await_port 5471
}
_calls() { # SOCKETS CALLS RATE
    (cd callee && exec sipp -sn uas -t t$1 -i 127.0.0.1 -p 5472 -m "$2" -max_socket 300 -nostdin -nd >/dev/null 2>&1) &
    local callee=$!
    await_port 5472
    (cd caller && timeout 60 sipp -sn uac -t t$1 -i 127.0.0.1 -p 5473 -m "$2" -r "$3" -l 40 -max_socket 300 -nostdin -trace_stat -stf ../stat.csv -fd 100 127.0.0.1:5471 >/dev/null 2>&1)
    echo "caller $?"
    tail -1 stat.csv | cut -d';' -f13,16,18
    rm -f stat.csv
    kill $callee 2>/dev/null
    wait $callee 2>/dev/null
}
calls_on_one_connection() {
    mkdir -p callee caller
    _kamailio 3
    _calls 1 500 200
}
calls_on_many_connections() {
    mkdir -p callee caller
    _kamailio 3
    _calls n 300 100
}
