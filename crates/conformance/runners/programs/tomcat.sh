# Tomcat, so the Java virtual machine's NIO: files, load, a kill and a new start.

_start() {
    mkdir -p base/{conf,logs,temp,work,webapps/ROOT}
    cp large base/webapps/ROOT/
    for _ in 1 2 3 4 5 6 7 8 9 10; do cat large; done >base/webapps/ROOT/huge
    echo hello >base/webapps/ROOT/hello
    cp /usr/share/tomcat10/etc/web.xml base/conf/ 2>/dev/null || cp /etc/tomcat10/web.xml base/conf/
    cat >base/conf/server.xml <<'END'
<Server port="-1"><Service name="s"><Connector port="6601" address="127.0.0.1" protocol="org.apache.coyote.http11.Http11NioProtocol" maxKeepAliveRequests="-1"/>
<Engine name="e" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine></Service></Server>
END
    export CATALINA_BASE=$PWD/base CATALINA_HOME=/usr/share/tomcat10 CATALINA_OPTS=-Xmx256m
    serve /usr/share/tomcat10/bin/catalina.sh run
    await_port 6601
    await curl -sf http://127.0.0.1:6601/hello
}
serves() {
    _start
    fetch 5 http://127.0.0.1:6601/large
    load 2000 20 http://127.0.0.1:6601/hello
    load 5000 20 http://127.0.0.1:6601/hello -k
}
killed_and_back() {
    _start
    timeout 60 curl -s --limit-rate 20M -o /dev/null http://127.0.0.1:6601/huge &
    sleep 0.5
    pkill -9 -f org.apache.catalina.startup.Bootstrap
    wait $!
    echo "client: $?"
    _start
    fetch 2 http://127.0.0.1:6601/large
}
