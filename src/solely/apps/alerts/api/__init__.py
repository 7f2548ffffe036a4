"""Operating: what operators ask and change, over HTTP and on the command line, and the answers in sentences."""
