def main(root, words): return 2
def unpack(root, say): pass
