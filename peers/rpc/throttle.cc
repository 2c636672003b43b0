// A caller of throttlecrab-server by gRPC's own library: `throttle-grpc PORT OUTSTANDING MILLISECONDS` prints nanoseconds of a call.
#include "throttle.grpc.pb.h"
#include <chrono>
#include <cstdio>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>
#include <vector>

struct Call {
    grpc::ClientContext context;
    throttlecrab::ThrottleResponse reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<throttlecrab::ThrottleResponse>> reader;
};

static double calls(throttlecrab::RateLimiter::Stub &limiter, unsigned outstanding, double nanoseconds) {
    using Clock = std::chrono::steady_clock;
    std::vector<throttlecrab::ThrottleRequest> requests(1000);
    for (size_t at = 0; at < requests.size(); at++) {
        requests[at].set_key("key_" + std::to_string(at));
        requests[at].set_max_burst(100);
        requests[at].set_count_per_period(10);
        requests[at].set_period(60);
        requests[at].set_quantity(1);
    }
    grpc::CompletionQueue queue;
    unsigned under_way = 0, random = 1;
    double each = 0;
    for (double part : {nanoseconds / 5, nanoseconds, 0.0}) {
        const auto begun = Clock::now();
        unsigned long count = 0;
        auto elapsed = [&] { return std::chrono::duration<double, std::nano>(Clock::now() - begun).count(); };
        // The last part takes what is under way.
        while (part > 0 ? elapsed() < part : under_way > 0) {
            for (; part > 0 && under_way < outstanding; under_way++) {
                random = random * 1664525 + 1013904223;
                auto *call = new Call;
                call->reader = limiter.AsyncThrottle(&call->context, requests[random / 65536 % requests.size()], &queue);
                call->reader->Finish(&call->reply, &call->status, call);
            }
            void *tag;
            bool ok;
            if (!queue.Next(&tag, &ok)) return -1;
            std::unique_ptr<Call> call(static_cast<Call *>(tag));
            if (!call->status.ok() || call->reply.limit() != 100) return -1;
            under_way--, count++;
        }
        if (part > 0) each = elapsed() / count;
    }
    return each;
}

int main(int count, char **argument) {
    if (count != 4) return 2;
    auto channel = grpc::CreateChannel(std::string("127.0.0.1:") + argument[1], grpc::InsecureChannelCredentials());
    auto limiter = throttlecrab::RateLimiter::NewStub(channel);
    const double each = calls(*limiter, std::stoul(argument[2]), 1e6 * std::stod(argument[3]));
    std::printf("%.1f\n", each);
    return each < 0;
}
