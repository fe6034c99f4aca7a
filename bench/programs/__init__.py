"""What runs in processes of its own: clients that submit, and peers' workers. Peers' files import nothing of ours but
`bench.board` and `bench.programs.asking`, because they run under another interpreter.
"""
