// What a head does, in a word and in a sentence, for each role of head_roles.js.

export const ROLE_TEXTS = {
  en: {
    roles: {
      resting: "edge", previous: "previous", own: "itself", diagonal: "in order", gathered: "same word",
      aligned: "aligned", focused: "one word", broad: "spread", mixed: "mixed",
    },
    roleNotes: {
      resting: "most weight rests on the edge of the sentence",
      previous: "looks at the previous word",
      own: "looks at the word itself",
      diagonal: "follows the order of the source",
      gathered: "almost every word looks at the same one",
      aligned: "each word looks at its own source word",
      focused: "each word looks at one word",
      broad: "looks at everything a little",
      mixed: "looks at several words",
    },
  },
  ko: {
    roles: {
      resting: "가장자리", previous: "바로 앞", own: "자신", diagonal: "순서대로", gathered: "같은 단어",
      aligned: "정렬", focused: "한 단어", broad: "두루", mixed: "섞임",
    },
    roleNotes: {
      resting: "가중치가 대부분 문장의 가장자리에 머뭅니다",
      previous: "바로 앞 단어를 봅니다",
      own: "자기 자신을 봅니다",
      diagonal: "원문의 순서를 따라갑니다",
      gathered: "거의 모든 단어가 같은 단어를 봅니다",
      aligned: "단어마다 자기 원문 단어를 봅니다",
      focused: "단어마다 한 단어를 봅니다",
      broad: "모두를 조금씩 봅니다",
      mixed: "여러 단어를 봅니다",
    },
  },
};
