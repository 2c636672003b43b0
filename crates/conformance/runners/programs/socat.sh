# socat, which forks, executes and forwards; and the sockets of bash.

socat_echoes_by_a_child_each() {
    serve socat -t 30 TCP-LISTEN:5010,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    await_port 5010
    for _ in $(seq 5); do talk 5010; done
}

socat_gives_the_socket_away() {
    serve socat -t 30 TCP-LISTEN:5011,bind=127.0.0.1,fork,reuseaddr EXEC:cat,nofork
    await_port 5011
    for _ in $(seq 5); do talk 5011; done
}

socat_forwards() {
    serve socat -t 30 TCP-LISTEN:5012,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    serve socat -t 30 TCP-LISTEN:5013,bind=127.0.0.1,fork,reuseaddr TCP:127.0.0.1:5012
    await_port 5012
    await_port 5013
    timeout 60 socat -t 10 -u FILE:large TCP:127.0.0.1:5013 &
    timeout 60 socat -t 10 - TCP:127.0.0.1:5013 <large | sha256sum
    wait $!
}

netcat_by_bash() {
    serve socat -t 30 TCP-LISTEN:5060,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    await_port 5060
    exec 3<>/dev/tcp/127.0.0.1/5060
    for word in one two three; do
        echo $word >&3
        read -r answer <&3
        echo "answer $answer"
    done
    exec 3>&-
}
