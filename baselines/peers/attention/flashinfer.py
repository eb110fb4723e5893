"""FlashInfer's prefill over a ragged batch, planned once, outside of its time."""

PACKAGE, VERSIONS = "flashinfer-python", ("0.7.",)
CALL = "flashinfer.BatchPrefillWithRaggedKVCacheWrapper.run(q, k, v), behind plan()"
ONLY = {"layout": "separate", "lse": "0"}


def build(problem):
    import torch
    from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

    batch, heads, queries, keys, dim = (problem.integer(name) for name in ("batch", "heads", "seq_q", "seq_kv", "dim"))
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(torch.empty(1 << 27, dtype=torch.uint8, device="cuda"), "NHD")
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
    wrapper.plan(starts * queries, starts * keys, heads, heads, dim, sm_scale=problem.real("scale") or None, q_data_type=problem.dtype)
    return lambda t: (wrapper.run(*(t[name].flatten(0, 1) for name in "qkv")).view(t["q"].shape),)
