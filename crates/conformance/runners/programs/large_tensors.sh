# PyTorch's loaders, tensors in shared memory and collectives between processes.

loader() {
    cat >loader.py <<'PY'
import torch, torch.multiprocessing, torch.utils.data
class Pictures(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, n): return torch.full((3, 128, 128), float(n)), n
def change(queue, tensor, taken):
    tensor += 1
    queue.put(tensor.sum().item())
    queue.put(torch.arange(1000))
    taken.wait()
if __name__ == "__main__":
    fork = torch.multiprocessing.get_context("fork")
    for strategy in ("file_descriptor", "file_system"):
        torch.multiprocessing.set_sharing_strategy(strategy)
        for workers, persistent in ((0, False), (2, False), (2, True)):
            loader = torch.utils.data.DataLoader(Pictures(), batch_size=8, num_workers=workers, persistent_workers=persistent)
            for _ in range(2):
                print(strategy, workers, [(batch.sum().item(), int(n.sum()), batch.is_shared()) for batch, n in loader])
        queue, taken, tensor = fork.Queue(), fork.Event(), torch.zeros(1 << 20).share_memory_()
        child = fork.Process(target=change, args=(queue, tensor, taken))
        child.start()
        print(queue.get(), queue.get().sum().item(), tensor.sum().item())
        taken.set()
        child.join()
PY
    timeout 120 /usr/bin/python3 loader.py
}

collectives() {
    cat >ranks.py <<'PY'
import os, sys, time, torch, torch.distributed as ranks
rank = int(sys.argv[1])
ranks.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
for length in (1, 1000, 1 << 20):
    tensor = torch.full((length,), float(rank + 1))
    ranks.all_reduce(tensor)
    gathered = [torch.zeros(length) for _ in range(2)]
    ranks.all_gather(gathered, torch.full((length,), float(rank)))
    ranks.broadcast(tensor, 0)
    if rank == 0: print(length, tensor.sum().item(), [part.sum().item() for part in gathered])
if rank == 0:
    open("gathered", "w").close()
    while not os.path.exists("gathered.told"): time.sleep(0.05)
ranks.barrier()
ranks.destroy_process_group()
PY
    tell_why_at gathered
    timeout 120 /usr/bin/python3 ranks.py 1 5371 &
    timeout 120 /usr/bin/python3 ranks.py 0 5371
    wait $!
}
