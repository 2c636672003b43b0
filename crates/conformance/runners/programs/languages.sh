# Run-times with event loops of their own: Haskell's (GHC, Warp), Steel Bank Common Lisp (Hunchentoot).
haskell() {
    cat >serve.hs <<'END'
{-# LANGUAGE OverloadedStrings #-}
import Network.Wai
import Network.Wai.Handler.Warp
import Network.HTTP.Types
main :: IO ()
main = runSettings (setPort 5511 (setHost "127.0.0.1" defaultSettings)) $ \request respond -> case rawPathInfo request of
  "/echo" -> strictRequestBody request >>= respond . responseLBS status200 []
  "/large" -> respond (responseFile status200 [] "large" Nothing)
  _ -> respond (responseLBS status200 [] "hello\n")
END
    ghc -v0 -threaded -rtsopts -O0 serve.hs -o serve || return
    local threads each clients
    for threads in 1 2; do
        serve ./serve +RTS -N$threads
        await_port 5511
        clients=()
        for each in 1 2 3 4; do
            fetch 3 http://127.0.0.1:5511/echo -H Expect: --data-binary @large >sum$each &
            clients+=($!)
        done
        wait "${clients[@]}"
        cat sum?
        fetch 4 http://127.0.0.1:5511/large
        load 1500 10 http://127.0.0.1:5511/hello
        load 5000 20 http://127.0.0.1:5511/hello -k
        kill "${servers[-1]}"
        wait "${servers[-1]}"
    done
}
lisp() {
    cat >serve.lisp <<'END'
(require :asdf)
(asdf:load-system :hunchentoot)
(hunchentoot:define-easy-handler (hello :uri "/hello") () (format nil "hello~%"))
(hunchentoot:define-easy-handler (echo :uri "/echo") () (hunchentoot:raw-post-data :force-binary t))
(hunchentoot:start (make-instance 'hunchentoot:easy-acceptor :port 5512 :address "127.0.0.1" :access-log-destination nil :message-log-destination nil))
(loop (sleep 100))
END
    serve sbcl --script serve.lisp
    await_port 5512
    head -c 900000 large >body
    fetch 4 http://127.0.0.1:5512/echo -H Expect: -H 'Content-Type: application/octet-stream' --data-binary @body
    load 500 8 http://127.0.0.1:5512/hello
    load 1500 8 http://127.0.0.1:5512/hello -k
}
