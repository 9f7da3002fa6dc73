"""outcomes.py FILE: one line for each test of a JUnit report, its name and how it went."""
import sys
import xml.etree.ElementTree as tree

for case in tree.parse(sys.argv[1]).iter("testcase"):
    kinds = {child.tag for child in case} & {"error", "failure", "skipped"}
    print(case.get("name").replace("\n", " "), "+".join(sorted(kinds)) or "ok", sep="\t")
