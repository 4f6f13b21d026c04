"""GGUF files, the format of llama.cpp, Ollama and LM Studio: read, and converted once into a model of transformers."""
