"""GGUF files as llama.cpp writes them."""

import gguf


def written(model, path, kind, raw=None):
    """Write a Llama or Qwen2, with the matrices in `raw` as they are, and with the other layers of
    blocks in a type."""
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    (arch,) = (a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == config.model_type)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, value in model.state_dict().items():
        array, layer = value.float().numpy(), name.split(".")[-2]
        if config.model_type == "llama" and layer in heads:
            halves = array.reshape(heads[layer], 2, -1, array.shape[1])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        is_layer = array.ndim > 1 and ".layers." in name
        type_ = kind if is_layer else gguf.GGMLQuantizationType.F32
        data = (raw or {}).get(name)
        if data is None:
            data = gguf.quantize(array, type_)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
