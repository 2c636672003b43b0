# Servers that execute a program for each connection, on its descriptors 0 and 1.

inetd_starts_cat() {
    echo '5020 stream tcp4 nowait root /bin/cat cat' >inetd.conf
    echo '5021 stream tcp4 nowait root /bin/sh sh -c read\ line;\ echo\ got\ $line' >>inetd.conf
    serve inetd -i "$PWD/inetd.conf"
    await_port 5020
    for _ in $(seq 5); do talk 5020; done
}

tcpserver_starts_programs() {
    serve tcpserver -HRl0 127.0.0.1 5030 sh -c 'read line; echo "got $line on $PROTO"; cat'
    await_port 5030
    for _ in $(seq 5); do talk 5030; done
}

socket_activation() {
    serve systemd-socket-activate -l 127.0.0.1:5040 --inetd -a cat
    await_port 5040
    for _ in $(seq 3); do talk 5040; done
}
