"""Texts on which a graph is compared with PyTorch: twelve built-in ones, or the lines of a file."""

from pathlib import Path

from ..errors import ServingError

LONG = (
    "唐朝是中国历史上一个繁荣的时代，首都长安有一百多万人口，是当时世界上最大的城市之一。来自各国的商人、学生和僧人住在"
    "这里，带来了香料、音乐和新的宗教，也把丝绸、瓷器和造纸的方法带回自己的家乡。诗歌在这个时期达到了顶峰，人们在酒楼、"
    "驿站和寺庙的墙上写诗，皇帝也用诗来选拔官员。"
)
# From two characters to six hundred: a question, news, law, a review, an encyclopedia, and some Latin letters and digits.
SENTENCES = (
    "你好。",
    "明天北京会下雨吗？",
    "这家店的服务很好，菜也很好吃，下次还会再来。",
    "手机的电池只用了三个月就坏了，客服一直不回消息，非常失望。",
    "原告请求判令被告归还借款五万元及利息，并承担本案的全部诉讼费用。",
    "机动车驾驶人应当遵守道路交通安全法律、法规的规定，按照操作规范安全驾驶、文明驾驶。",
    "中国科学家在《自然》杂志上发表论文，介绍了他们在量子通信方面取得的新进展。",
    "长江是亚洲最长的河流，全长6300多公里，发源于青藏高原，在上海注入东海。",
    "The Great Wall，也就是长城，在1987年被列为世界文化遗产，每年有超过1000万人前来参观。",
    "昨天下午，市政府召开会议，研究如何改善城市的公共交通。会议决定，今年将新增二十条公交线路，并在主要道路上设置自行车道。",
    LONG,
    LONG * 4,
)


def read_texts(path: str | Path | None) -> list[str]:
    """Return the non-empty lines of a file, or the built-in sentences if `path` is None.

    Raises:
        ServingError: the file has no text, or is not UTF-8.
    """
    if path is None:
        return list(SENTENCES)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ServingError(f"{path} is not UTF-8 text") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ServingError(f"{path} has no text; expected one text per line")
    return texts
