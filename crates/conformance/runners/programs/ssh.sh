# OpenSSH: commands, scp, sftp, rsync over it, a forwarded port; a session that is killed, a listener that is told to start anew.

_start() {
    mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f user
    cp user.pub authorized
    cat >sshd.conf <<END
Port 5501
ListenAddress 127.0.0.1
HostKey $PWD/host
PidFile $PWD/sshd.pid
AuthorizedKeysFile $PWD/authorized
StrictModes no
PermitRootLogin yes
UsePAM no
Subsystem sftp /usr/lib/openssh/sftp-server
END
    cat >ssh.conf <<END
Host there
HostName 127.0.0.1
Port 5501
User root
IdentityFile $PWD/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ServerAliveInterval 5
END
    [ -d tree ] || { mkdir -p tree/{a,b,c}; for name in a b c; do split -b 300k large tree/$name/; done; }
    serve /usr/sbin/sshd -D -f "$PWD/sshd.conf" -E sshd.log
    await_port 5501
}
_sum() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }

commands() {
    rm -f host* user*; _start
    for _ in 1 2 3 4 5; do timeout 60 ssh -F ssh.conf there 'sha256sum; echo end $SSH_CONNECTION | cut -d" " -f1,2,4,5; exit 7' <large; echo "status $?"; done
    timeout 60 ssh -F ssh.conf there cat "$PWD/large" | sha256sum
    timeout 60 ssh -tt -F ssh.conf there 'tty >/dev/null && echo terminal' </dev/null
}
copies() {
    rm -f host* user*; _start
    timeout 60 scp -q -F ssh.conf large "there:$PWD/copied"; sha256sum <copied
    timeout 60 scp -q -O -F ssh.conf "there:$PWD/large" again; sha256sum <again
    printf 'put %s/large %s/put\nget %s/large %s/got\nrm %s/put\n' "$PWD" "$PWD" "$PWD" "$PWD" "$PWD" | timeout 60 sftp -q -b - -F ssh.conf there >/dev/null
    sha256sum <got; ls put 2>&1
    timeout 60 scp -q -r -F ssh.conf tree "there:$PWD/copy"; _sum copy
    timeout 60 rsync -a -e 'ssh -F ssh.conf' tree/ "there:$PWD/synchronised"; _sum synchronised
}
forwarded_port() {
    rm -f host* user*; _start
    serve socat -t 30 TCP-LISTEN:5502,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    serve ssh -N -F ssh.conf -L 127.0.0.1:5503:127.0.0.1:5502 there
    await_port 5502
    await_port 5503
    for _ in 1 2 3; do talk 5503; done
    timeout 60 socat -t 10 - TCP:127.0.0.1:5503 <large | sha256sum
}
killed_session_and_new_start() {
    rm -f host* user*; _start
    timeout 60 ssh -F ssh.conf there 'kill -9 $PPID; sleep 1; echo never' 2>/dev/null
    echo "status $?"
    # SIGHUP executes sshd anew.
    kill -HUP "$(cat sshd.pid)"
    await timeout 10 ssh -F ssh.conf there true
    for _ in 1 2 3; do timeout 60 ssh -F ssh.conf there echo after; done
}
