"""How the bundled model ``eddy-tiny`` is made: prepare, train, evaluate, export."""
