# Postfix: its master opens the ports for the programs it executes; mail by many connections, through a relay, and what was delivered.
_postfix() {
    mkdir -p etc spool data home
    chmod 777 home
    chown postfix data
    # Its port, and nothing in a changed root.
    sed 's/^smtp  *inet.*/127.0.0.1:5481 inet n - n - - smtpd/' /usr/share/postfix/master.cf.dist |
        awk '/^[a-z0-9.:]+ /{ $5 = "n" } { print }' >etc/master.cf
    cat >etc/main.cf <<END
compatibility_level = 3.6
queue_directory = $PWD/spool
data_directory = $PWD/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
myhostname = localhost
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
relayhost = [127.0.0.1]:5482
default_destination_concurrency_limit = 10
disable_dns_lookups = yes
smtp_host_lookup = native
maillog_file = $PWD/spool/maillog
maillog_file_prefixes = $PWD
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
alias_maps =
alias_database =
local_recipient_maps =
END
    chmod a+rX . etc
    serve smtp-sink -u nobody -c -d "$PWD/home/%H%M%S." 127.0.0.1:5482 200
    await_port 5482
    postfix -c "$PWD/etc" post-install create-missing >/dev/null 2>&1
    postfix -c "$PWD/etc" check >/dev/null 2>&1
    serve /usr/lib/postfix/sbin/master -c "$PWD/etc" -d
    await_port 5481
}
_messages() { cat home/* 2>/dev/null | grep -c '^Subject: '; }
_bodies() { cat home/* | grep '^[0-9X][X]' | sort | sha256sum; }
_have() { [[ $(_messages) == "$1" ]]; }
postfix_relays() {
    _postfix
    smtp-source -s 8 -m 200 -l 20000 -f a@localhost -t b@localhost -S number 127.0.0.1:5481 >/dev/null
    await _have 200
    _bodies
    (for _ in 1 2 3; do sleep 0.3; command postfix -c "$PWD/etc" reload >/dev/null 2>&1; done) &
    smtp-source -s 8 -m 100 -l 200000 -f a@localhost -t b@localhost -S number 127.0.0.1:5481
    await _have 300
    _bodies
    command postfix -c "$PWD/etc" stop >/dev/null 2>&1
}
