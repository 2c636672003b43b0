// The store of examples/kv.x over gRPC's own library: `kv-grpc serve PATH`, `kv-grpc bench PATH ROW MILLISECONDS`.
#include "kv.grpc.pb.h"
#include <chrono>
#include <cstdio>
#include <grpcpp/grpcpp.h>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

class Store final : public kv::KeyValue::Service {
    std::mutex lock;
    std::map<std::string, kv::Entry> keys;
    std::vector<kv::Event> events;
    size_t bytes = 0;
    uint64_t revision = 0;

    grpc::Status Put(grpc::ServerContext *, const kv::PutRequest *request, kv::PutReply *reply) override {
        std::lock_guard<std::mutex> held(lock);
        kv::Entry &entry = keys[request->key()];
        if (request->previous() && entry.puts() > 0) *reply->mutable_previous() = entry;
        entry.set_key(request->key());
        entry.set_value(request->value());
        entry.set_modified(++revision);
        if (entry.puts() == 0) entry.set_created(revision);
        entry.set_puts(entry.puts() + 1);
        bytes += request->value().size();
        if (bytes > (64u << 20)) events.clear(), bytes = 0;
        events.emplace_back();
        *events.back().mutable_what() = entry;
        reply->set_revision(revision);
        return grpc::Status::OK;
    }

    grpc::Status Range(grpc::ServerContext *, const kv::RangeRequest *request, kv::RangeReply *reply) override {
        std::lock_guard<std::mutex> held(lock);
        const std::string end = request->end().empty() ? request->key() + std::string(1, '\0') : request->end();
        reply->set_revision(revision);
        uint64_t count = 0;
        for (auto at = keys.lower_bound(request->key()); at != keys.end() && at->first < end; ++at) {
            if (count++ < request->limit()) *reply->add_entries() = at->second;
        }
        reply->set_count(count);
        return grpc::Status::OK;
    }

    // What happened so far, a hundred kilobytes or so in a message.
    grpc::Status Watch(grpc::ServerContext *, const kv::WatchRequest *request, grpc::ServerWriter<kv::WatchReply> *writer) override {
        std::lock_guard<std::mutex> held(lock);
        kv::WatchReply reply;
        size_t size = 0;
        for (const kv::Event &event : events) {
            const kv::Entry &what = event.what();
            if (what.modified() < request->since() || what.key() < request->key() || what.key() >= request->end()) continue;
            *reply.add_events() = event;
            size += what.value().size() + 64;
            if (size < 100000) continue;
            if (!writer->Write(reply)) return grpc::Status::CANCELLED;
            reply.Clear(), size = 0;
        }
        reply.set_next(revision + 1);
        writer->Write(reply);
        return grpc::Status::OK;
    }
};

static int serve(const std::string &path) {
    Store store;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(&store);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server) return 1;
    server->Wait();
    return 0;
}

// A call under way.
template <class Reply> struct Call {
    grpc::ClientContext context;
    Reply reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
};

// Nanoseconds of a call, with so many outstanding.
template <class Reply, class Begin> static double calls(unsigned outstanding, double nanoseconds, Begin begin) {
    grpc::CompletionQueue queue;
    unsigned under_way = 0;
    double each = 0;
    for (double part : {nanoseconds / 5, nanoseconds}) {
        const auto begun = Clock::now();
        unsigned long count = 0;
        auto elapsed = [&] { return std::chrono::duration<double, std::nano>(Clock::now() - begun).count(); };
        while (elapsed() < part) {
            for (; under_way < outstanding; under_way++) {
                auto *call = new Call<Reply>;
                call->reader = begin(&call->context, &queue);
                call->reader->Finish(&call->reply, &call->status, call);
            }
            void *tag;
            bool ok;
            if (!queue.Next(&tag, &ok)) return -1;
            std::unique_ptr<Call<Reply>> call(static_cast<Call<Reply> *>(tag));
            if (!call->status.ok()) return -1;
            under_way--, count++;
        }
        each = elapsed() / count;
    }
    for (; under_way > 0; under_way--) {
        void *tag;
        bool ok;
        if (!queue.Next(&tag, &ok)) return -1;
        delete static_cast<Call<Reply> *>(tag);
    }
    return each;
}

static double bench(const std::string &path, const std::string &row, double nanoseconds) {
    auto store = kv::KeyValue::NewStub(grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
    char what[8];
    unsigned bytes, many;
    if (std::sscanf(row.c_str(), "%7[a-z]/%u/%u", what, &bytes, &many) != 3) return -1;
    kv::PutRequest put;
    put.set_key("key");
    put.set_value(std::string(bytes, '\7'));
    auto put_once = [&](kv::PutReply *reply) {
        grpc::ClientContext context;
        return store->Put(&context, put, reply).ok();
    };
    kv::PutReply first, other;
    if (!put_once(&first)) return -1;
    if (std::string(what) == "put") {
        return calls<kv::PutReply>(many, nanoseconds, [&](auto *context, auto *queue) { return store->AsyncPut(context, put, queue); });
    }
    if (std::string(what) == "range") {
        kv::RangeRequest range;
        range.set_key("key");
        range.set_limit(1);
        return calls<kv::RangeReply>(many, nanoseconds, [&](auto *context, auto *queue) { return store->AsyncRange(context, range, queue); });
    }
    for (unsigned at = 1; at < many; at++) {
        if (!put_once(&other)) return -1;
    }
    const auto begun = Clock::now();
    auto elapsed = [&] { return std::chrono::duration<double, std::nano>(Clock::now() - begun).count(); };
    unsigned long count = 0;
    while (elapsed() < nanoseconds) {
        grpc::ClientContext context;
        kv::WatchRequest request;
        kv::WatchReply reply;
        request.set_key("key");
        request.set_end("kez");
        request.set_since(first.revision());
        auto reader = store->Watch(&context, request);
        while (reader->Read(&reply)) count += reply.events_size();
        if (!reader->Finish().ok()) return -1;
    }
    return elapsed() / count;
}

int main(int count, char **argument) {
    const std::string what = count > 2 ? argument[1] : "";
    if (count == 3 && what == "serve") return serve(argument[2]);
    if (count != 5 || what != "bench") return 2;
    const double each = bench(argument[2], argument[3], 1e6 * std::stod(argument[4]));
    std::printf("%.1f\n", each);
    return each < 0;
}
