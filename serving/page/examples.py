"""Example texts of the page, in Chinese, and in English for vocabularies without Chinese. They were written for it."""

_JUDGMENT = """原告王建国与被告李小明房屋租赁合同纠纷一案，本院受理后，依法组成合议庭，公开开庭进行了审理，现已审理终结。
原告王建国诉称，原告将位于本市中山路的房屋出租给被告李小明，租期两年，每月租金三千元。被告从去年六月起没有支付租金，原告多次要求支付，被告一直拒绝。请求解除租赁合同，判令被告支付所欠租金，并退还房屋。
被告李小明辩称，房屋漏水，原告没有修理，所以不支付租金。
经审理查明，双方签订租赁合同，租期两年，每月租金三千元。被告从去年六月起没有支付租金。房屋漏水后，原告已经派人修理。
本院认为，依法成立的合同对双方有约束力。被告没有按照约定支付租金，已经构成违约，原告要求解除合同，本院予以支持。判决如下：
一、解除原告与被告之间的[MASK]合同；
二、被告支付原告所欠租金一万八千元。"""
_REPORT = """The library of our town was built in 1908. It stands beside the river and holds forty thousand books.
Last spring the river rose and water came into the cellar, where the oldest books were kept.
People of the town carried them up the stairs, and a school gave its hall so that they could dry.
Most of them were saved. The town has now decided to keep its oldest books on the upper floor of the [MASK].
Work begins in June."""
_CASES = "两车相撞，被告负事故的主要责任。\n房屋租赁合同到期，押金没有退还。\n被告向原告借款五万元，到期没有归还。\n夫妻感情破裂，原告请求离婚。"
_ENGLISH_CASES = (
    "Two cars met at a crossing, and one driver was hurt.\nThe contract of the flat has ended, and the deposit was not "
    "returned.\nA debt of five thousand was not paid back."
)

# Tab -> examples, each with one text per field.
CHINESE = {
    "fill": [["这本书的内容很好，值得[MASK]。"], ["原告请求法院[MASK]被告归还借款。"], ["酒店的位置很[MASK]，服务也很[MASK]。"]],
    "document": [[_JUDGMENT]],
    "segments": [
        ["今天天气非常好，我们去公园玩。"], ["被告应于二〇二七年一月一日前归还借款5万元。"], ["RoFormer 用旋转位置编码。"],
    ],
    "triplet": [
        ["租客要求房东退还押金。", "两车相撞，被告负主要责任。", "房屋租赁合同到期，押金没有退还。"],
        ["原告起诉称，被告向其借款八万元，到期后拒不归还。", "被告因做生意缺少资金，向原告借款五万元，到期没有归还。",
         "被告驾驶汽车与原告的电动车相撞，原告受伤住院。"],
    ],
    "rank": [["租客要求房东退还房屋押金。", _CASES], ["汽车撞伤行人，要求赔偿医疗费。", _CASES]],
    "compare": [["租客要求房东退还房屋押金。\n房屋租赁合同到期，押金没有退还。\n两车相撞，被告负主要责任。"]],
    "classify": [["房间很干净，服务也很好，下次还会来。", ""], ["质量太差，用了两天就坏了。", ""]],
    "entities": [["张伟在北京大学读书，李娜在上海工作。"]],
    "answer": [["租金是多少？", "双方签订房屋租赁合同，租期两年，每月租金三千元，押金六千元。"]],
    "write": [["今天天气不错"], ["广州和深圳哪个好？"]],
}  # fmt: skip
ENGLISH = {
    "fill": [["The book is well written and worth [MASK]."], ["The [MASK] of the town stands beside the river."]],
    "document": [[_REPORT]],
    "segments": [["The weather is fine today, so we walk to the park."], ["It was built in 1908."]],
    "triplet": [["The tenant wants the deposit back.", *_ENGLISH_CASES.split("\n")[:2]]],
    "rank": [["The tenant wants the deposit back.", _ENGLISH_CASES]],
    "compare": [[_ENGLISH_CASES]],
    "classify": [["The room was clean and the people were kind.", ""], ["It broke after two days.", ""]],
    "entities": [["Anna Smith works in Berlin."]],
    "answer": [["When was the library built?", _REPORT.split("\n", 1)[0]]],
    "write": [["A dog runs over the grass."]],
}
