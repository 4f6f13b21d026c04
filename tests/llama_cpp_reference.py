"""What llama.cpp gives for a GGUF file: a program for an interpreter that has the package llama-cpp-python.

It reads from standard input, as JSON, the path of a file, texts to tokenize and texts to embed, and writes the ids of
each text, those that come before and after every text, and the vectors (mean of the last states, unscaled).
"""

import ctypes
import json
import sys

import llama_cpp

QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)  # called for as long as the process lives


def main() -> None:
    asked = json.load(sys.stdin)
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p())
    model = llama_cpp.Llama(
        asked["file"],
        embedding=True,
        pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN,
        n_ctx=256,  # a model with two sets of angles takes those of its context, whatever a text's length
        n_batch=256,
        n_ubatch=256,
        n_seq_max=1,
        n_threads=1,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        yarn_beta_fast=-1.0,  # the file's own
        yarn_beta_slow=-1.0,
        verbose=False,
    )
    ids = [model.tokenize(text.encode(), add_bos=False, special=False) for text in asked["texts"]]
    around = model.tokenize(b"a", add_bos=True, special=False), model.tokenize(b"a", add_bos=False, special=False)
    vectors = [model.embed(text) for text in asked["embedded"]]
    model.close()
    json.dump({"ids": ids, "around": around, "vectors": vectors}, sys.stdout)


if __name__ == "__main__":
    main()
