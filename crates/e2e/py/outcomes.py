"""outcomes.py FILE: prints the name and the outcome of each test of a JUnit report."""
import sys
import xml.etree.ElementTree as tree

for case in tree.parse(sys.argv[1]).iter("testcase"):
    kinds = {child.tag for child in case} & {"error", "failure", "skipped"}
    print(case.get("name").replace("\n", " "), "+".join(sorted(kinds)) or "ok", sep="\t")
