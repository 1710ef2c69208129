// What a head does, in a word and in a sentence, for each role of head_roles.js.

export const ROLE_TEXTS = {
  en: {
    roles: {
      resting: "edge", previous: "previous", own: "itself", diagonal: "in order", gathered: "same word",
      aligned: "aligned", focused: "one word", broad: "spread", mixed: "mixed",
    },
    roleNotes: {
      resting: "most weight rests on the edge of the sentence",
      previous: "most weight is on the previous word",
      own: "most weight is on the word itself",
      diagonal: "most weight follows the order of the source",
      gathered: "most weight is on one and the same word",
      aligned: "most words look at one source word each, mostly different ones",
      focused: "most words look at one word each",
      broad: "the weight is spread over most words",
      mixed: "the weight is on several words",
    },
  },
  ko: {
    roles: {
      resting: "가장자리", previous: "바로 앞", own: "자신", diagonal: "순서대로", gathered: "같은 단어",
      aligned: "대응", focused: "한 단어", broad: "고르게", mixed: "여러 곳",
    },
    roleNotes: {
      resting: "가중치가 대부분 문장의 가장자리에 있습니다",
      previous: "가중치가 대부분 바로 앞 단어에 있습니다",
      own: "가중치가 대부분 그 단어 자신에 있습니다",
      diagonal: "가중치가 대부분 원문의 순서를 따릅니다",
      gathered: "가중치가 대부분 같은 단어 하나에 있습니다",
      aligned: "대부분의 단어가 원문 단어를 하나씩 보며, 그 단어들은 대체로 서로 다릅니다",
      focused: "대부분의 단어가 한 단어씩 봅니다",
      broad: "가중치가 대부분의 단어에 고르게 퍼져 있습니다",
      mixed: "가중치가 여러 단어에 나뉘어 있습니다",
    },
  },
};
