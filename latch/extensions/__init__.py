"""Extensions: sandboxed programs that the operator configures, and what their authors import."""
