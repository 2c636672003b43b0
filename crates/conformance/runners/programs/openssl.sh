# TLS by the openssl command.

openssl_reverses_lines() {
    serve openssl s_server -accept 5001 -cert certificate.pem -key key.pem -rev -quiet
    await_port 5001
    mkfifo lines
    timeout 60 openssl s_client -connect 127.0.0.1:5001 -quiet -no_ign_eof <lines >reversed 2>/dev/null &
    # It ends when its input does, so that stays open until both answers are there.
    exec 3>lines
    printf 'abc\nhello\n' >&3
    await sh -c '[ "$(wc -l <reversed)" = 2 ]'
    exec 3>&-
    wait $!
    cat reversed
}

openssl_serves_files() {
    serve openssl s_server -accept 5002 -cert certificate.pem -key key.pem -WWW -quiet
    await_port 5002
    for _ in 1 2 3 4 5; do curl -sk --http0.9 https://127.0.0.1:5002/large | sha256sum; done
}

openssl_renews_sessions() {
    serve openssl s_server -accept 5003 -cert certificate.pem -key key.pem -www -quiet
    await_port 5003
    timeout 60 openssl s_client -connect 127.0.0.1:5003 -reconnect -tls1_2 </dev/null 2>/dev/null | grep -c '^Reused\|^New'
}
