"""Questions to the handbook, each with one that follows it up and the page that answers both."""

from __future__ import annotations

PAIRS = (
    ("How does a hybrid index add the scores of words and of meaning?", "And what does alpha weigh?", "hybrid.md"),
    ("How are words stemmed for BM25?", "How much does that add on the development sets?", "hybrid.md"),
    ("How does Eddy read a PDF file?", "Does it remove headers and page numbers?", "files.md"),
    ("What happens to footnotes in a Word file?", "And text boxes?", "files.md"),
    ("Where does the title of a Markdown file come from?", "How many characters are searched for it?", "files.md"),
    ("What does EddyEmbeddingFunction do in Chroma?", "How long does it hold the model?", "chroma.md"),
    ("What is a passage in an index whose folder is damaged?", "Can they be repaired?", "chroma.md"),
    ("What does the page keep of an uploaded PDF file?", "When is it deleted?", "web.md"),
    ("What does the model write with --generate?", "Which of those sentences are shown?", "web.md"),
    ("Who can reach the page without a token?", "What about other machines?", "web.md"),
    ("How does LangChain use the endpoint?", "What would it download otherwise?", "endpoint.md"),
    ("How do I embed a Ray dataset?", "And what are the columns of a row then?", "ray.md"),
    ("How many GPUs do a billion passages need?", "Does one server hold them?", "scale.md"),
    ("How does eddy layers find the layers for kv?", "How large must its sample be?", "layers.md"),
    ("What does the EddyEncoder for MTEB do with instructions?", "And with blank texts?", "mteb.md"),
    ("What is hierarchical token prepending?", "What does it cost?", "methods.md"),
    ("What is Echo?", "How many copies does it make?", "methods.md"),
    ("What is Token Prepending?", "And its weakness?", "methods.md"),
    ("How does Eddy find sentences in a long document?", "What are they cut at if too long?", "long-documents.md"),
    ("What does a window know of earlier windows?", "Were summaries of them tried?", "long-documents.md"),
    ("How do I install Eddy?", "Which versions of Python does it need?", "getting-started.md"),
    ("How can two methods be compared with eddy compare?", "What does it print?", "command-line.md"),
    ("How do I come from sentence-transformers to Eddy?", "What changes there?", "migration.md"),
    ("What does eddy diagnose say about length collapse?", "Why does it happen?", "diagnose.md"),
)
"""A question, its follow-up, and the page of the handbook."""
